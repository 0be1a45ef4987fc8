"""Where Synapse's streams stand at this moment, read in one short transaction: it costs the source milliseconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.schema_drift import exclude_drifted_tables
from synapse_lakehouse.postgres.connection import Connection, connect
from synapse_lakehouse.postgres.errors import ReadError

_MOST_SECONDS: Final = 10
"""A database that needs longer for a statement has no time to be watched."""

_MOST_IDS: Final = 10_000
"""Ids that are read beyond where a stream is known to be closed: one look does not extend a bound by more."""


@dataclass(frozen=True)
class LiveStreamPosition:
    """Where a stream stands.

    ``positions``: by writer, as ``stream_positions`` has them. ``handed_out``: the last id that its sequence gave out,
    0 if none; sequences count up even where rows have negative ids. ``beyond``: ids of the first rows beyond where the
    stream is known to be closed.
    """

    positions: Mapping[str, int]
    handed_out: int
    ids_beyond_end: tuple[int, ...]


ComputeClosedEnd = Callable[[Stream, Mapping[str, int], int], int | None]
"""The id up to which a stream is known to be closed, from its positions and the last id handed out; None: not known."""


def read_live_positions(
    settings: Settings, catalogue: Catalogue, closed: ComputeClosedEnd
) -> dict[str, LiveStreamPosition]:
    """Every stream's standing by its name, as one snapshot shows them.

    :param closed: from where on rows are read.
    :raises SourceError: when the source cannot be connected to.
    :raises ReadError: when a statement fails, or takes too long.
    """
    with connect(settings) as connection:
        try:
            known = exclude_drifted_tables(catalogue, connection, may_be_partial=settings.allows_partial_copy)
            return _standings(connection, known, closed)
        except psycopg.Error as error:
            raise ReadError(error) from None


def _standings(connection: Connection, catalogue: Catalogue, closed: ComputeClosedEnd) -> dict[str, LiveStreamPosition]:
    set_short_timeout(connection)
    positions: dict[str, dict[str, int]] = {}
    for name, writer, position in connection.execute(
        "select stream_name, instance_name, stream_id from stream_positions"
    ).fetchall():
        positions.setdefault(name, {})[writer] = position
    found = {}
    for stream in catalogue.streams:
        of_writers = positions.get(stream.stream_positions or "", {})
        last = read_last_sequence_value(connection, stream.sequence)
        end = closed(stream, of_writers, last)
        beyond = () if end is None else _beyond(connection, catalogue, stream, end)
        found[stream.name] = LiveStreamPosition(of_writers, last, beyond)
    return found


def set_short_timeout(connection: Connection) -> None:
    """Let statements of this transaction fail rather than burden a busy database."""
    connection.execute(sql.SQL("set local statement_timeout = {}").format(sql.Literal(f"{_MOST_SECONDS}s")))


def read_last_sequence_value(connection: Connection, sequence: str) -> int:
    """The last id that ``sequence`` gave out, 0 if none."""
    row = connection.execute(
        sql.SQL("select last_value - (not is_called)::int from {}").format(sql.Identifier(sequence))
    ).fetchone()
    assert row is not None
    return int(row[0])


def _beyond(connection: Connection, catalogue: Catalogue, stream: Stream, end: int) -> tuple[int, ...]:
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
                most=sql.Literal(_MOST_IDS),
            )
        )
        ids.update(row[0] for row in rows.fetchall())
    return tuple(ids)
