"""Integrity faults of Synapse's database in the latest release."""

from collections.abc import Sequence
from typing import Any, Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS, IntegrityCheck

_TABLE: Final = "gold.state_integrity"
_LEVELS: Final = {"fail": FindingLevel.FAIL, "warn": FindingLevel.WARN, "info": FindingLevel.OK}
_NAMED: Final = 3
_FIRST: Final = f"""
select check_name, severity, count(*) over (partition by check_name), room_id, subject, expected, found from {_TABLE}
qualify row_number() over (
  partition by check_name order by list_position(['fail', 'warn', 'info'], severity), room_id, subject
) <= {_NAMED}
order by list_position(['fail', 'warn', 'info'], severity), room_id, subject
"""  # noqa: S608 - quoted


def examine(connection: DuckDBPyConnection, settings: Settings) -> Findings:
    """One finding for each integrity check with faults; none before the first release."""
    known = duckdb_reader.list_releases(connection, settings)
    if not known:
        return
    if _TABLE not in known[0].tables:
        message = f"Release {known[0].number} has no {_TABLE}."
        yield DoctorFinding(FindingLevel.WARN, "integrity", message, "Run `make run`.")
        return
    duckdb_reader.create_views(connection, settings, known[0], [_TABLE])
    first: dict[str, list[tuple[Any, ...]]] = {}
    for check, *row in connection.execute(_FIRST).fetchall():
        first.setdefault(check, []).append(tuple(row))
    yield from (_finding(check, first[check.name]) for check in INTEGRITY_CHECKS if check.name in first)
    if all(severity == "info" for rows in first.values() for severity, *_ in rows):
        message = f"release {known[0].number} has no integrity faults"
        yield DoctorFinding(FindingLevel.OK, "integrity", message)


def _finding(check: IntegrityCheck, first: Sequence[tuple[Any, ...]]) -> DoctorFinding:
    severity, count, *_ = first[0]
    named = "; ".join(
        f"{room or 'no room'} {output.format_value(subject).strip()} (expected {expected}, found {found})"
        for _, _, room, subject, expected, found in first
    )
    message = f"{count:,} {check.title}: {named}{'; …' if count > len(first) else ''}"
    every = f"uv run lakehouse query \"from {_TABLE} where check_name = '{check.name}'\""
    return DoctorFinding(_LEVELS[severity], check.name, message, f"{check.means} {check.advice}\nAll: {every}")
