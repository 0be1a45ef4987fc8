"""Check Synapse's database: connection, clock, role and schema."""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Final

import psycopg

from synapse_lakehouse import catalogue
from synapse_lakehouse.cli.doctor import excess_privileges, sequences
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.access.absent_objects import find_absent_objects, read_source_catalogue
from synapse_lakehouse.postgres.access.schema_drift import (
    exclude_drifted_tables,
    find_drift,
    find_drifted_tables,
    find_unknown_objects,
)
from synapse_lakehouse.postgres.access.state_database import (
    can_compare,
    explain_foreign_state,
    explain_same_database,
)
from synapse_lakehouse.postgres.connection import SYNAPSE_SCHEMA_SQL, Connection, connect, split_by_database
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.postgres.snapshot.standby_replay import read_replayed_until, wait_for_replay
from synapse_lakehouse.streams.checks.group_sequence import find_group_sequence_fault

_CLOCK_SECONDS: Final = 5
_REPLAY_SECONDS: Final = 5
_HARMLESS_DRIFT: Final = ("missing_unique_key", "changed_type")
"""Kinds of drift that do not prevent the check of privileges."""
_SKIPPED: Final = "LAKEHOUSE_ON_DRIFT is partial: runs skip this table and copy all other tables."


def examine(
    connection: Connection, settings: Settings, declared: catalogue.Catalogue | None, *, is_sample: bool
) -> Findings:
    """Check that all tables of ``declared`` can be read, by a role without other privileges."""
    is_state = declared is not None and catalogue.Database.MAIN not in declared.databases
    database = f"the {'state ' * is_state}database of {settings.synapse_server_name}"
    database = "the shipped sample" if is_sample else database
    version, is_standby = _fetch_row(connection, "select current_setting('server_version'), pg_is_in_recovery()")
    message = f"connected to {database}, PostgreSQL {version}{', a standby' if is_standby else ''}"
    yield DoctorFinding(FindingLevel.OK, "source", message)
    yield _clock(connection)
    yield from check_snapshot_age(connection)
    try:
        if is_sample:
            yield DoctorFinding(FindingLevel.OK, "role", "the role of the embedded server; all sessions are read-only")
        elif declared:
            script = f"lakehouse grants{' --state' * is_state}"
            yield from excess_privileges.examine(connection, excess_privileges.reader_privileges(declared), script)
        if declared:
            yield from _schema(connection, settings, declared)
    except SourceError as error:
        yield DoctorFinding(FindingLevel.FAIL, "schema", str(error))
    except psycopg.Error as error:
        message = f"The schema cannot be examined. PostgreSQL reported: {' '.join(str(error).split())}"
        yield DoctorFinding(FindingLevel.FAIL, "schema", message, "Correct the cause, then run this again.")


def compare_databases(settings: Settings, declared: catalogue.Catalogue) -> Findings:
    """Check that the databases of SYNAPSE_DSN and SYNAPSE_STATE_DSN belong together.

    The state database must not be behind the main database: neither its replayed WAL nor its sequence of state groups.
    """
    parts = split_by_database(settings, declared)
    with ExitStack() as stack:
        main, state = (stack.enter_context(connect(settings, part.databases[0])) for part in parts)
        if problem := explain_same_database(main, state):
            yield DoctorFinding(FindingLevel.FAIL, "state database", problem)
            return
        present = [
            exclude_drifted_tables(read_source_catalogue(part, connection), connection, may_be_partial=True)
            for part, connection in zip(parts, (main, state), strict=True)
        ]
        if not can_compare(*present):
            return
        try:
            wait_for_replay(state, read_replayed_until(main), "SYNAPSE_STATE_DSN", _REPLAY_SECONDS)
            problem = explain_foreign_state(main, state, "SYNAPSE_STATE_DSN")
            fault = find_group_sequence_fault(main, state)
        except SourceError as error:
            problem, fault = str(error), None
        if fault:
            yield sequences.report_fault(fault)
        if problem:
            yield DoctorFinding(FindingLevel.FAIL, "state database", problem)
        else:
            yield DoctorFinding(FindingLevel.OK, "state database", "it has the state of the homeserver in SYNAPSE_DSN")


def check_snapshot_age(connection: Connection) -> Findings:
    """Check that the server does not end long copies by ``old_snapshot_threshold`` (PostgreSQL 14 to 16)."""
    (threshold,) = _fetch_row(connection, "select current_setting('old_snapshot_threshold', true)")
    if threshold not in (None, "-1"):
        message = f"old_snapshot_threshold is {threshold}: a copy that takes longer fails with `snapshot too old`."
        advice = "Set it to -1, its default, and restart PostgreSQL. Or set it to more than the duration of a copy."
        yield DoctorFinding(FindingLevel.WARN, "source", message, advice)


def measure_database_bytes(connection: Connection) -> int | None:
    """Return the size of the database in bytes; None if the role may not read it."""
    try:
        (size,) = _fetch_row(connection, "select pg_database_size(current_database())")
    except psycopg.Error:
        return None
    return int(size)


def _clock(connection: Connection) -> DoctorFinding:
    (source_time,) = _fetch_row(connection, "select clock_timestamp()")
    seconds = (datetime.now(UTC) - source_time).total_seconds()
    if abs(seconds) <= _CLOCK_SECONDS:
        return DoctorFinding(FindingLevel.OK, "clock", f"within {_CLOCK_SECONDS} s of the clock of Synapse's database")
    relation = "ahead of" if seconds > 0 else "behind"
    message = f"This machine's clock is {abs(seconds):.0f} s {relation} the clock of Synapse's database server."
    advice = "Synchronise both clocks by NTP. Otherwise data intervals are wrong, and leases expire early or late."
    return DoctorFinding(FindingLevel.WARN, "clock", message, advice)


def _schema(connection: Connection, settings: Settings, declared: catalogue.Catalogue) -> Findings:
    version = preflight.read_schema_version(connection, declared.databases)
    if problem := preflight.explain_unsupported_version(connection, declared, version):
        yield DoctorFinding(FindingLevel.FAIL, "schema", problem)
        return
    absent = find_absent_objects(declared, connection)
    (schema,) = _fetch_row(connection, f"select {SYNAPSE_SCHEMA_SQL}::text")
    yield from _release(declared, version, schema, absent)
    catalogued, declared = declared, declared.restrict_to_source(absent)
    drift = find_drift(declared, connection)
    skipped = find_drifted_tables(declared, connection) if settings.allows_partial_copy else {}
    for difference in drift:
        is_skipped = difference.table in skipped
        level = FindingLevel.WARN if difference.kind == "missing_unique_key" or is_skipped else FindingLevel.FAIL
        yield DoctorFinding(level, "drift", difference.message, _SKIPPED if is_skipped else "")
    if not drift:
        yield DoctorFinding(
            FindingLevel.OK, "drift", "all tables and columns of this release exist, with their types and keys"
        )
    if new := find_unknown_objects(catalogued, connection):
        message = f"The catalogue does not list {', '.join(new)}, so runs do not copy it."
        advice = "No copied table needs it. A newer version of the lakehouse may copy it."
        yield DoctorFinding(FindingLevel.WARN, "novelties", message, advice)
    is_harmless = all(difference.kind in _HARMLESS_DRIFT for difference in drift)
    if not is_harmless and not settings.allows_partial_copy:
        return
    declared = declared.without_tables(skipped)
    problems = [("rights", problem) for problem in preflight.find_missing_grants(connection, declared)]
    problems += [("row security", problem) for problem in preflight.check_row_security(connection, declared)]
    for subject, problem in problems:
        yield DoctorFinding(FindingLevel.FAIL, subject, problem)
    if problems:
        return
    yield DoctorFinding(FindingLevel.OK, "rights", "the role can read all rows of the catalogued tables")
    for problem in preflight.check_server_name(connection, declared, str(settings.synapse_server_name)):
        yield DoctorFinding(FindingLevel.FAIL, "server name", problem)


def _release(declared: catalogue.Catalogue, version: int, schema: str, absent: Sequence[str]) -> Findings:
    supported = f"{declared.oldest_schema_version} to {declared.newest_schema_version}"
    message = f"Synapse's version {version} in the schema {schema}; {supported} are supported"
    if version > declared.newest_schema_version:
        advice = "Synapse declares this version compatible, and no table or column is missing. Upgrade the lakehouse."
        yield DoctorFinding(FindingLevel.WARN, "schema", message, advice)
    else:
        yield DoctorFinding(FindingLevel.OK, "schema", message)
    if absent:
        message = f"this release of Synapse has no {', '.join(absent)}: the lake has empty tables and constants instead"
        yield DoctorFinding(FindingLevel.OK, "release", message)


def load_catalogue_or_none() -> catalogue.Catalogue | None:
    """Return the catalogue; None if it cannot be read (another check reports this)."""
    try:
        return catalogue.load_catalogue()
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _fetch_row(connection: Connection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row
