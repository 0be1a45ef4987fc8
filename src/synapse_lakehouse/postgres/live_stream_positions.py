"""Read the current positions of Synapse's streams in one transaction of a few milliseconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
from synapse_lakehouse.postgres.access.preflight import require_server_name, require_supported_version
from synapse_lakehouse.postgres.access.schema_drift import exclude_drifted_tables
from synapse_lakehouse.postgres.access.ungranted_additions import exclude_ungranted_additions
from synapse_lakehouse.postgres.connection import Connection, connect, split_by_database

_MAX_SECONDS: Final = 10
"""Statement timeout in seconds. A database that needs longer is too busy for monitoring."""

_MAX_IDS: Final = 10_000
"""Maximum number of IDs that one sample reads beyond the closed end of a stream. They may extend the safe bound."""


@dataclass(frozen=True)
class LiveStreamPosition:
    """The current position of a stream.

    * ``positions``: stream ID by writer, from the table ``stream_positions``.
    * ``last_allocated_id``: last value of the sequence, 0 if it is unused. It counts up, even for negative IDs.
    * ``ids_beyond_end``: IDs of the first rows beyond the closed end of the stream.
    """

    positions: Mapping[str, int]
    last_allocated_id: int
    ids_beyond_end: tuple[int, ...]


ComputeClosedEnd = Callable[[Stream, Mapping[str, int], int], int | None]
"""Function that returns the closed end of a stream, from its positions and last sequence value; None if unknown."""


def read_live_positions(
    settings: Settings, catalogue: Catalogue, compute_closed_end: ComputeClosedEnd
) -> dict[str, LiveStreamPosition]:
    """Return the positions of all streams of the source, by stream name. All are from one PostgreSQL snapshot.

    Streams that an upgrade of Synapse added, and that the role may not read yet, are left out.

    :param compute_closed_end: returns the ID up to which a stream is closed. Only rows beyond this ID are read.
    :raises SourceError: when no connection can be made, this version of Synapse is not supported, or the database
        belongs to another homeserver.
    :raises ReadError: when a statement fails, or takes too long.
    """
    with connect(settings) as connection:
        require_supported_version(connection, split_by_database(settings, catalogue)[0])
        present = exclude_ungranted_additions(read_source_catalogue(catalogue, connection), connection)
        readable = exclude_drifted_tables(present, connection, may_be_partial=settings.allows_partial_copy)
        set_short_timeout(connection)
        require_server_name(connection, readable, settings)
        return _read_all(connection, readable, compute_closed_end)


def _read_all(
    connection: Connection, catalogue: Catalogue, compute_closed_end: ComputeClosedEnd
) -> dict[str, LiveStreamPosition]:
    positions: dict[str, dict[str, int]] = {}
    for name, writer, position in connection.execute(
        "select stream_name, instance_name, stream_id from stream_positions"
    ).fetchall():
        positions.setdefault(name, {})[writer] = position
    live = {}
    for stream in catalogue.streams:
        by_writer = positions.get(stream.stream_positions or "", {})
        last = read_last_sequence_value(connection, stream.sequence)
        end = compute_closed_end(stream, by_writer, last)
        beyond_end = () if end is None else _read_ids_beyond(connection, catalogue, stream, end)
        live[stream.name] = LiveStreamPosition(by_writer, last, beyond_end)
    return live


def set_short_timeout(connection: Connection) -> None:
    """Set a short statement timeout for this transaction, to spare a busy database."""
    connection.execute(sql.SQL("set local statement_timeout = {}").format(sql.Literal(f"{_MAX_SECONDS}s")))


def read_last_sequence_value(connection: Connection, sequence: str) -> int:
    """Return the last value of ``sequence``, 0 if it is unused."""
    row = connection.execute(
        sql.SQL("select last_value - (not is_called)::int from {}").format(sql.Identifier(sequence))
    ).fetchone()
    assert row is not None
    return int(row[0])


def _read_ids_beyond(connection: Connection, catalogue: Catalogue, stream: Stream, end: int) -> tuple[int, ...]:
    counts_down = stream.sign == "negative"
    ids: set[int] = set()
    for table, column in catalogue.backing_tables(stream.name):
        statement = sql.SQL("select {id} from {table} where {id} {beyond} {end} order by {id} {order} limit {most}")
        rows = connection.execute(
            statement.format(
                id=sql.Identifier(column),
                table=sql.Identifier(table.name),
                beyond=sql.SQL("<" if counts_down else ">"),
                end=sql.Literal(end),
                order=sql.SQL("desc" if counts_down else "asc"),
                most=sql.Literal(_MAX_IDS),
            )
        )
        ids.update(row[0] for row in rows.fetchall())
    return tuple(ids)
