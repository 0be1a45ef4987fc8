"""What Synapse would find in its database if it started now."""

from collections.abc import Iterable, Iterator, Mapping

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Stream, Table
from synapse_lakehouse.source.connection import Connection
from synapse_lakehouse.source.errors import ReadFailed
from synapse_lakehouse.source.live import be_brief, handed_out
from synapse_lakehouse.streams.sequences import Fault, Standing, faults, rows_beyond


def read(connection: Connection, declared: Catalogue) -> dict[str, Standing]:
    """The standing in the source of every stream by its name, and of every other sequence by its own; those that cannot
    be read are absent."""
    found = {}
    for name, one in _checked(declared).items():
        try:
            with connection.transaction():
                found[name] = _standing(connection, declared, one)
        except psycopg.Error:
            continue
    return found


def misfits(declared: Catalogue, now: Mapping[str, Standing]) -> Iterator[tuple[str, Fault]]:
    """What Synapse would refuse or mend at its start, of what is known, each with what it concerns."""
    for name, one in _checked(declared).items():
        if name not in now:
            continue
        if isinstance(one, Stream):
            yield from ((f"stream {name}", fault) for fault in faults(one, now[name]))
        else:
            yield from ((f"table {one.name}", fault) for fault in rows_beyond(name, now[name]))


def preflight(connection: Connection, declared: Catalogue) -> list[tuple[str, Fault]]:
    """The :func:`misfits` of all streams and other sequences; none where all fits.

    :raises ReadFailed: when one cannot be read, or not soon: nobody may take that for a good sign.
    """
    try:
        be_brief(connection)
        now = {name: _standing(connection, declared, one) for name, one in _checked(declared).items()}
    except psycopg.Error as error:
        raise ReadFailed(error) from None
    return list(misfits(declared, now))


def _checked(declared: Catalogue) -> dict[str, Stream | Table]:
    """Streams by name, and tables by the sequence that gives their key out."""
    streams: dict[str, Stream | Table] = {stream.name: stream for stream in declared.streams}
    return streams | {table.sequence: table for table in declared.tables if table.sequence}


def _standing(connection: Connection, declared: Catalogue, one: Stream | Table) -> Standing:
    if isinstance(one, Table):
        assert one.sequence is not None
        return _seen(connection, one.sequence, {}, _furthest(connection, ((one, one.primary_key[0]),), 1))
    stored = connection.execute(
        "select instance_name, stream_id from stream_positions where stream_name = %s", [one.stream_positions]
    ).fetchall()
    furthest = _furthest(connection, declared.backing(one.name), one.direction)
    return _seen(connection, one.sequence, {writer: int(position) for writer, position in stored}, furthest)


def _furthest(connection: Connection, tables: Iterable[tuple[Table, str]], sign: int) -> dict[str, int]:
    """The furthest id by table, of those whose ids have the sign that they should have."""
    furthest = {}
    for table, column in tables:
        end = sql.SQL("min" if sign < 0 else "max")
        row = connection.execute(
            sql.SQL("select {}({}) from {}").format(end, sql.Identifier(column), sql.Identifier(table.name))
        ).fetchone()
        if row and row[0] is not None and (row[0] < 0) is (sign < 0):
            furthest[table.name] = int(row[0])
    return furthest


def _seen(connection: Connection, sequence: str, positions: Mapping[str, int], furthest: Mapping[str, int]) -> Standing:
    row = connection.execute("select pg_is_in_recovery()").fetchone()
    # Last: what is committed meanwhile is not to be seen without its id.
    return Standing(handed_out(connection, sequence), positions, furthest, may_be_ahead=row != (False,))
