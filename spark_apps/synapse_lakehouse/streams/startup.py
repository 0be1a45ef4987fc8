"""What Synapse would find in its database if it started now."""

from collections.abc import Iterator, Mapping

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Stream
from synapse_lakehouse.source.connection import Connection
from synapse_lakehouse.source.errors import ReadFailed
from synapse_lakehouse.source.live import be_brief, handed_out
from synapse_lakehouse.streams.sequences import Fault, Standing, faults


def read(connection: Connection, declared: Catalogue) -> dict[str, Standing]:
    """Every stream's standing in the source by name; those that cannot be read are absent."""
    found = {}
    for stream in declared.streams:
        try:
            with connection.transaction():
                found[stream.name] = _standing(connection, declared, stream)
        except psycopg.Error:
            continue
    return found


def misfits(declared: Catalogue, now: Mapping[str, Standing]) -> Iterator[tuple[Stream, Fault]]:
    """What Synapse would refuse or mend at its start, of the streams whose standing is known."""
    for stream in declared.streams:
        if stream.name in now:
            yield from ((stream, fault) for fault in faults(stream, now[stream.name]))


def preflight(connection: Connection, declared: Catalogue) -> list[tuple[Stream, Fault]]:
    """The :func:`misfits` of all streams; none where all fits.

    :raises ReadFailed: when a stream cannot be read, or not soon: nobody may take that for a good sign.
    """
    try:
        be_brief(connection)
        now = {stream.name: _standing(connection, declared, stream) for stream in declared.streams}
    except psycopg.Error as error:
        raise ReadFailed(error) from None
    return list(misfits(declared, now))


def _standing(connection: Connection, declared: Catalogue, stream: Stream) -> Standing:
    stored = connection.execute(
        "select instance_name, stream_id from stream_positions where stream_name = %s", [stream.stream_positions]
    ).fetchall()
    furthest = {}
    for table, column in declared.backing(stream.name):
        end = sql.SQL("min" if stream.sign == "negative" else "max")
        row = connection.execute(
            sql.SQL("select {}({}) from {}").format(end, sql.Identifier(column), sql.Identifier(table.name))
        ).fetchone()
        if row and row[0] is not None and (row[0] < 0) is (stream.sign == "negative"):
            furthest[table.name] = int(row[0])
    return Standing(handed_out(connection, stream), {writer: int(position) for writer, position in stored}, furthest)
