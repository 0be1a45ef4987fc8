"""Synapse's database: its clock, our role and rights in it, its schema."""

from datetime import UTC, datetime
from typing import Any, Final

import psycopg

from synapse_lakehouse import catalogue
from synapse_lakehouse.cli.doctor import role
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.access.schema_drift import find_drift, find_drifted_tables, find_unknown_objects
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import SourceError

_CLOCK_SECONDS: Final = 5
_EXAMINED_FURTHER: Final = ("missing_unique_key", "changed_type")
"""Departures of tables whose rights can be examined."""
_KEPT: Final = "LAKEHOUSE_ON_DRIFT is partial: runs leave this table as it was and copy all others."


def examine(connection: Connection, settings: Settings, *, is_sample: bool) -> Findings:
    """Can this database be copied whole, and can we do it no harm?"""
    where = "the shipped sample" if is_sample else f"the database of {settings.synapse_server_name}"
    version, standby = _one(connection, "select current_setting('server_version'), pg_is_in_recovery()")
    yield DoctorFinding(
        FindingLevel.OK, "source", f"connected to {where}, PostgreSQL {version}{', a standby' if standby else ''}"
    )
    yield _clock(connection)
    try:
        if is_sample:
            yield DoctorFinding(FindingLevel.OK, "role", "the embedded server's own; all access is read-only")
        elif declared := load_catalogue_or_none():
            yield from role.examine(connection, role.reader_privileges(declared), "lakehouse grants")
        yield from _schema(connection, settings)
    except SourceError as error:
        yield DoctorFinding(FindingLevel.FAIL, "schema", str(error))
    except psycopg.Error as error:
        message = f"The schema cannot be examined. PostgreSQL said: {' '.join(str(error).split())}"
        yield DoctorFinding(FindingLevel.FAIL, "schema", message, "Mend what the message names, then run this again.")


def measure_database_bytes(connection: Connection) -> int | None:
    """Bytes that the database takes on its server's disk; None if the role may not know."""
    try:
        (found,) = _one(connection, "select pg_database_size(current_database())")
    except psycopg.Error:
        return None
    return int(found)


def _clock(connection: Connection) -> DoctorFinding:
    (theirs,) = _one(connection, "select clock_timestamp()")
    apart = (datetime.now(UTC) - theirs).total_seconds()
    if abs(apart) <= _CLOCK_SECONDS:
        return DoctorFinding(FindingLevel.OK, "clock", f"within {_CLOCK_SECONDS} s of the source's")
    message = f"This machine's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the source's."
    advice = (
        "Synchronise both by NTP: intervals would be cut in the wrong place, and the lake lease expire early or late."
    )
    return DoctorFinding(FindingLevel.WARN, "clock", message, advice)


def _schema(connection: Connection, settings: Settings) -> Findings:
    declared = load_catalogue_or_none()
    if declared is None:
        return
    version = preflight.read_schema_version(connection)
    supported = f"{declared.oldest_schema_version} to {declared.newest_schema_version}"
    if declared.oldest_schema_version <= version <= declared.newest_schema_version:
        yield DoctorFinding(FindingLevel.OK, "schema", f"Synapse's version {version}; {supported} are supported")
    else:
        yield DoctorFinding(
            FindingLevel.FAIL,
            "schema",
            f"Synapse's schema version {version} is not supported; {supported} are.",
            "Upgrade Synapse." if version < declared.oldest_schema_version else "Upgrade the lakehouse.",
        )
    departures = find_drift(declared, connection)
    goes_on = settings.allows_partial_copy
    kept = find_drifted_tables(declared, connection) if goes_on else {}
    for one in departures:
        mild = one.kind == "missing_unique_key" or one.table in kept
        yield DoctorFinding(
            FindingLevel.WARN if mild else FindingLevel.FAIL, "drift", one.message, _KEPT if one.table in kept else ""
        )
    if not departures:
        yield DoctorFinding(
            FindingLevel.OK, "drift", "every table and column of the catalogue is there, with its type and key"
        )
    if new := find_unknown_objects(declared, connection):
        message = f"The lakehouse has never heard of {', '.join(new)}, and does not copy it."
        yield DoctorFinding(
            FindingLevel.WARN, "novelties", message, "A newer lakehouse may know it; nothing else depends on it."
        )
    if any(one.kind not in _EXAMINED_FURTHER for one in departures) and not goes_on:
        return
    declared = declared.without_tables(kept)
    problems = [("rights", problem) for problem in preflight.find_missing_grants(connection, declared)]
    problems += [("row security", problem) for problem in preflight.check_row_security(connection, declared)]
    for subject, problem in problems:
        yield DoctorFinding(FindingLevel.FAIL, subject, problem)
    if problems:
        return
    yield DoctorFinding(FindingLevel.OK, "rights", "the role may read all rows of all that the catalogue lists")
    for problem in preflight.check_server_name(connection, declared, str(settings.synapse_server_name)):
        yield DoctorFinding(FindingLevel.FAIL, "server name", problem)


def load_catalogue_or_none() -> catalogue.Catalogue | None:
    """The catalogue; None where it cannot be read, which is a finding of its own."""
    try:
        return catalogue.load_catalogue()
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _one(connection: Connection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row
