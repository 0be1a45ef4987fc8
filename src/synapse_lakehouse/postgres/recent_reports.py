"""Read the recent reports of events, rooms and users, without their reasons."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
from synapse_lakehouse.postgres.access.preflight import require_server_name
from synapse_lakehouse.postgres.access.schema_drift import exclude_drifted_tables
from synapse_lakehouse.postgres.access.ungranted_additions import exclude_ungranted_additions
from synapse_lakehouse.postgres.connection import Connection, connect
from synapse_lakehouse.postgres.live_stream_positions import set_short_timeout

MAX_REPORTS: Final = 100
"""Maximum number of reports that are read from each table, the newest first."""

_SUBJECTS: Final = {
    "event_reports": ("event", "event_id"),
    "room_reports": ("room", "room_id"),
    "user_reports": ("user", "target_user_id"),
}
"""For each table, the kind of its reports, and the column with the reported ID."""


@dataclass(frozen=True)
class Report:
    """A report: user ``reporter_id`` reported the event, room or user ``reported_id``."""

    id: int
    reported_id: str
    reporter_id: str


@dataclass(frozen=True)
class RecentReports:
    """The newest reports of a kind: event, room or user.

    ``reports``: at most :data:`MAX_REPORTS` reports. ``count``: number of all recent reports.
    """

    kind: str
    reports: Sequence[Report]
    count: int


def read_recent_reports(settings: Settings, catalogue: Catalogue, since: datetime) -> list[RecentReports]:
    """Return the reports that Synapse received after ``since``.

    :raises SourceError: when no connection can be made, or the database belongs to another homeserver.
    :raises ReadError: when a statement fails, or takes too long.
    """
    with connect(settings) as connection:
        present = exclude_ungranted_additions(read_source_catalogue(catalogue, connection), connection)
        readable = exclude_drifted_tables(present, connection, may_be_partial=settings.allows_partial_copy)
        names = {table.name for table in readable.tables}
        set_short_timeout(connection)
        require_server_name(connection, readable, settings)
        return [
            _read(connection, kind, table, column, since)
            for table, (kind, column) in _SUBJECTS.items()
            if table in names
        ]


def _read(connection: Connection, kind: str, table: str, column: str, since: datetime) -> RecentReports:
    names = {"reported": sql.Identifier(column), "table": sql.Identifier(table), "limit": sql.Literal(MAX_REPORTS)}
    parameters = [int(since.timestamp() * 1000)]
    # The times have no index, but IDs are in the order of receipt.
    newest = sql.SQL(
        "select id, {reported}, user_id from ("
        "select id, received_ts, {reported}, user_id from {table} order by id desc limit {limit}"
        ") as newest where received_ts > %s order by id"
    ).format(**names)
    reports = [Report(*row) for row in connection.execute(newest, parameters)]
    if len(reports) < MAX_REPORTS:
        return RecentReports(kind, reports, len(reports))
    all_reports = sql.SQL("select count(*) from {table} where received_ts > %s").format(**names)
    ((count,),) = connection.execute(all_reports, parameters)
    return RecentReports(kind, reports, count)
