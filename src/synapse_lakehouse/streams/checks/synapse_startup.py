"""What Synapse would find in its database if it started now."""

from collections.abc import Iterable, Iterator, Mapping

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, StartupSequence, Stream
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.stream_positions import read_last_sequence_value, set_short_timeout
from synapse_lakehouse.streams.checks.sequences import SequenceFault, StreamProgress, find_sequence_faults


def read_progress(connection: Connection, declared: Catalogue) -> dict[str, StreamProgress]:
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


def find_startup_faults(declared: Catalogue, now: Mapping[str, StreamProgress]) -> Iterator[tuple[str, SequenceFault]]:
    """What Synapse would refuse or mend at its start, of what is known, each with what it concerns."""
    for name, one in _checked(declared).items():
        if name in now:
            kind = "stream" if isinstance(one, Stream) else "sequence"
            yield from ((f"{kind} {name}", fault) for fault in find_sequence_faults(one, now[name]))


def check_startup(connection: Connection, declared: Catalogue) -> list[tuple[str, SequenceFault]]:
    """The :func:`find_startup_faults` of all streams and other sequences; none where all fits.

    :raises ReadError: when one cannot be read, or not soon: nobody may take that for a good sign.
    """
    try:
        set_short_timeout(connection)
        now = {name: _standing(connection, declared, one) for name, one in _checked(declared).items()}
    except psycopg.Error as error:
        raise ReadError(error) from None
    return list(find_startup_faults(declared, now))


def _checked(declared: Catalogue) -> dict[str, Stream | StartupSequence]:
    """Streams, and sequences of none, by name."""
    of_streams = {stream.sequence for stream in declared.streams}
    streams: dict[str, Stream | StartupSequence] = {stream.name: stream for stream in declared.streams}
    return streams | {one.name: one for one in declared.checked_at_start if one.name not in of_streams}


def _standing(connection: Connection, declared: Catalogue, one: Stream | StartupSequence) -> StreamProgress:
    stored = connection.execute(
        "select instance_name, stream_id from stream_positions where stream_name = %s", [one.stream_positions]
    ).fetchall()
    furthest = _furthest(connection, _ids(declared, one), one.direction)
    row = connection.execute("select pg_is_in_recovery()").fetchone()
    return StreamProgress(
        # Last: what is committed meanwhile is not to be seen without its id.
        handed_out=read_last_sequence_value(connection, one.sequence),
        positions={writer: int(position) for writer, position in stored},
        furthest=furthest,
        may_be_ahead=row != (False,),
    )


def _ids(declared: Catalogue, one: Stream | StartupSequence) -> list[tuple[str, str]]:
    """Tables, each with the column whose ids the sequence gives out."""
    backing = declared.backing_tables(one.name) if isinstance(one, Stream) else ()
    further = (other.ids for other in declared.checked_at_start if other.name == one.sequence)
    return [*((table.name, column) for table, column in backing), *(pair for ids in further for pair in ids.items())]


def _furthest(connection: Connection, ids: Iterable[tuple[str, str]], sign: int) -> dict[str, int]:
    """The furthest id by table, of those whose ids have the sign that they should have."""
    furthest = {}
    for table, column in ids:
        end = sql.SQL("min" if sign < 0 else "max")
        row = connection.execute(
            sql.SQL("select {}({}) from {}").format(end, sql.Identifier(column), sql.Identifier(table))
        ).fetchone()
        if row and row[0] is not None and (row[0] < 0) is (sign < 0):
            furthest[table] = int(row[0])
    return furthest
