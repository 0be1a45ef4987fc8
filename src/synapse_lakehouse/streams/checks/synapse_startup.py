"""Run Synapse's startup checks of its sequences on the source database."""

from collections.abc import Iterable, Iterator, Mapping

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, StartupSequence, Stream
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.live_stream_positions import read_last_sequence_value, set_short_timeout
from synapse_lakehouse.streams.checks.sequences import SequenceFault, StreamProgress, find_sequence_faults


def read_progress(connection: Connection, declared: Catalogue) -> dict[str, StreamProgress]:
    """Return the progress of each stream and each other checked sequence, by name. Unreadable streams are absent."""
    progress = {}
    for name, checked in _checked(declared).items():
        try:
            with connection.transaction():
                progress[name] = _progress(connection, declared, checked)
        except psycopg.Error:
            continue
    return progress


def find_startup_faults(
    declared: Catalogue, progress: Mapping[str, StreamProgress]
) -> Iterator[tuple[str, SequenceFault]]:
    """Yield the faults that Synapse's own startup checks would find, each with the name of its stream or sequence."""
    for name, checked in _checked(declared).items():
        if name in progress:
            kind = "stream" if isinstance(checked, Stream) else "sequence"
            yield from ((f"{kind} {name}", fault) for fault in find_sequence_faults(checked, progress[name]))


def check_startup(connection: Connection, declared: Catalogue) -> list[tuple[str, SequenceFault]]:
    """Read the progress of all streams and sequences, and return their :func:`find_startup_faults`.

    :raises ReadError: if a stream cannot be read in time, because an incomplete check proves nothing.
    """
    try:
        set_short_timeout(connection)
        progress = {name: _progress(connection, declared, checked) for name, checked in _checked(declared).items()}
    except psycopg.Error as error:
        raise ReadError(error) from None
    return list(find_startup_faults(declared, progress))


def _checked(declared: Catalogue) -> dict[str, Stream | StartupSequence]:
    """Streams, and sequences that belong to no stream. The keys are their names."""
    of_streams = {stream.sequence for stream in declared.streams}
    streams: dict[str, Stream | StartupSequence] = {stream.name: stream for stream in declared.streams}
    return streams | {
        sequence.name: sequence for sequence in declared.checked_at_start if sequence.name not in of_streams
    }


def _progress(connection: Connection, declared: Catalogue, checked: Stream | StartupSequence) -> StreamProgress:
    positions_sql = "select instance_name, stream_id from stream_positions where stream_name = %s"
    # A state database has no table stream_positions, and no sequence with positions.
    name = checked.stream_positions
    stored = connection.execute(positions_sql, [name]).fetchall() if name else []
    furthest = _furthest_ids(connection, _id_columns(declared, checked), checked.direction)
    row = connection.execute("select pg_is_in_recovery()").fetchone()
    return StreamProgress(
        # The sequence is read last. Otherwise new rows would seem to be beyond the sequence.
        last_allocated_id=read_last_sequence_value(connection, checked.sequence),
        positions={writer: int(position) for writer, position in stored},
        furthest=furthest,
        may_be_ahead=row != (False,),
    )


def _id_columns(declared: Catalogue, checked: Stream | StartupSequence) -> list[tuple[str, str]]:
    """Each table with IDs of the sequence, and the column with these IDs."""
    backing = declared.backing_tables(checked.name) if isinstance(checked, Stream) else ()
    others = (sequence.ids for sequence in declared.checked_at_start if sequence.name == checked.sequence)
    return [*((table.name, column) for table, column in backing), *(pair for ids in others for pair in ids.items())]


def _furthest_ids(connection: Connection, columns: Iterable[tuple[str, str]], sign: int) -> dict[str, int]:
    """By table, the ID furthest from zero among those with the expected sign."""
    furthest = {}
    for table, column in columns:
        aggregate = sql.SQL("min" if sign < 0 else "max")
        row = connection.execute(
            sql.SQL("select {}({}) from {}").format(aggregate, sql.Identifier(column), sql.Identifier(table))
        ).fetchone()
        if row and row[0] is not None and (row[0] < 0) is (sign < 0):
            furthest[table] = int(row[0])
    return furthest
