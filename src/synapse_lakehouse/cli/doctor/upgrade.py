"""Check whether Synapse and PostgreSQL may be upgraded: background updates, end of support, collation."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg
from duckdb import DuckDBPyConnection

from synapse_lakehouse.catalogue.postgres_end_of_support import describe_support, find_end_of_support
from synapse_lakehouse.cli.doctor.finding import DoctorFinding, FindingLevel, Findings
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.collation import describe_collation, find_collation_faults
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.report.update_history import PendingUpdate, read_pending_updates

_SUBJECT: Final = "background updates"
_STUCK: Final = timedelta(days=1)
_STUCK_ADVICE: Final = (
    "Search the log of Synapse's main process for the update's name. An update that creates an index records no "
    "progress: look at pg_stat_progress_create_index."
)
_PENDING: Final = "select update_name, depends_on from background_updates order by ordering, update_name"
_READABLE: Final = "select has_column_privilege(to_regclass('background_updates'), 'depends_on', 'select')"


def examine(connection: Connection) -> Findings:
    """Check the running database: PostgreSQL's end of support, collation, and pending background updates."""
    yield _check_support(connection)
    yield from _check_collation(connection)
    try:
        with connection.transaction():
            yield from _check_updates(connection)
    except psycopg.Error as error:
        message = f"The background updates cannot be read. PostgreSQL reported: {str(error).splitlines()[0]}"
        yield DoctorFinding(FindingLevel.WARN, _SUBJECT, message)


def examine_history(connection: DuckDBPyConnection, settings: Settings) -> Findings:
    """Report the release in which each pending background update was first seen, and warn of updates that are stuck."""
    yield from describe_updates(read_pending_updates(connection, settings), datetime.now(UTC))


def describe_updates(updates: Sequence[PendingUpdate], now: datetime) -> Findings:
    """Return a finding for each pending background update of the newest release."""
    for update in updates:
        progress = f", progress {update.progress}" if update.progress else ""
        message = f"{update.name} is pending, first seen at {update.first_seen}{progress}"
        if update.waits_for:
            yield DoctorFinding(FindingLevel.OK, _SUBJECT, f"{message}. It waits for {update.waits_for}")
        elif now - update.unchanged_since.published_at < _STUCK:
            yield DoctorFinding(FindingLevel.OK, _SUBJECT, message)
        else:
            message += f". Its progress has been the same since {update.unchanged_since}."
            yield DoctorFinding(FindingLevel.WARN, _SUBJECT, message, _STUCK_ADVICE)


def _check_updates(connection: Connection) -> Findings:
    if connection.execute(_READABLE).fetchone() != (True,):
        # Another check reports the missing right.
        return
    updates = connection.execute(_PENDING).fetchall()
    if not updates:
        yield DoctorFinding(FindingLevel.OK, _SUBJECT, "none is pending, so Synapse may be upgraded")
        return
    names = {name for name, _ in updates}
    listed = ", ".join(f"{name} (after {after})" if after in names else name for name, after in updates)
    advice = "Let Synapse complete them before you upgrade it. Synapse's log shows their progress."
    yield DoctorFinding(
        FindingLevel.WARN,
        _SUBJECT,
        f"{len(updates)} are pending in the database {connection.info.dbname}: {listed}.",
        advice,
    )


def _check_support(connection: Connection) -> DoctorFinding:
    (version,) = connection.execute("show server_version").fetchone() or ("0",)
    end, today = find_end_of_support(version), datetime.now(UTC).date()
    if end is None:
        return DoctorFinding(FindingLevel.OK, "PostgreSQL", f"version {version}")
    support, is_due = describe_support(version, end, today)
    if not is_due:
        return DoctorFinding(FindingLevel.OK, "PostgreSQL", support)
    return DoctorFinding(FindingLevel.WARN, "PostgreSQL", f"{support}.", "Plan an upgrade of PostgreSQL.")


def _check_collation(connection: Connection) -> Findings:
    faults = find_collation_faults(connection)
    for fault in faults:
        level = FindingLevel.FAIL if fault.needs_repair else FindingLevel.WARN
        yield DoctorFinding(level, "collation", fault.message, fault.advice)
    if not faults:
        yield DoctorFinding(FindingLevel.OK, "collation", describe_collation(connection))
