"""Integrity faults of Synapse's database in the latest release."""

from collections.abc import Sequence
from typing import Any, Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.room_state.integrity_check import IntegrityCheck
from synapse_lakehouse.room_state.integrity_checks import WORST_FIRST

_TABLE: Final = "gold.state_integrity"
_LEVELS: Final = {"fail": FindingLevel.FAIL, "warn": FindingLevel.WARN, "info": FindingLevel.OK}
_MAX_EXAMPLES: Final = 3
_EXAMPLES: Final = f"""
select check_name, severity, count(*) over same_kind, room_id, subject, expected, found from {_TABLE}
window same_kind as (partition by check_name, severity = 'info')
qualify row_number() over (
  partition by check_name order by list_position(['fail', 'warn', 'info'], severity), room_id, subject
) <= {_MAX_EXAMPLES} and (severity = 'info') = bool_and(severity = 'info') over (partition by check_name)
order by list_position(['fail', 'warn', 'info'], severity), room_id, subject
"""  # noqa: S608 - quoted


def examine(connection: DuckDBPyConnection, settings: Settings) -> Findings:
    """Return a finding for each integrity check with faults; none before the first release."""
    releases = duckdb_reader.list_releases(connection, settings)
    if not releases:
        return
    latest = releases[0]
    if _TABLE not in latest.tables:
        message = f"Release {latest.number} has no {_TABLE}."
        yield DoctorFinding(FindingLevel.WARN, "integrity", message, "Run `make run`.")
        return
    duckdb_reader.create_views(connection, settings, latest, [_TABLE])
    examples: dict[str, list[tuple[Any, ...]]] = {}
    for check, *row in connection.execute(_EXAMPLES).fetchall():
        examples.setdefault(check, []).append(tuple(row))
    yield from (_finding(check, examples[check.name]) for check in WORST_FIRST if check.name in examples)
    if all(severity == "info" for rows in examples.values() for severity, *_ in rows):
        message = f"release {latest.number} has no integrity faults"
        yield DoctorFinding(FindingLevel.OK, "integrity", message)


def _finding(check: IntegrityCheck, examples: Sequence[tuple[Any, ...]]) -> DoctorFinding:
    severity, count, *_ = examples[0]
    listed = "; ".join(
        f"{room or 'no room'} {output.format_value(subject).strip()} (expected {expected}, found {actual})"
        for _, _, room, subject, expected, actual in examples
    )
    message = f"{count:,} {check.title}: {listed}{'; …' if count > len(examples) else ''}"
    query = f"uv run lakehouse query \"from {_TABLE} where check_name = '{check.name}'\""
    return DoctorFinding(_LEVELS[severity], check.name, message, f"{check.means} {check.advice}\nAll: {query}")
