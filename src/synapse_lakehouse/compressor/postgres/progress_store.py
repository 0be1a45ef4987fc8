"""Read and write the saved progress of rooms in the progress tables."""

from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection, sql

from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult, RoomProgress
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.level_sizes import Levels, levels_from_rows
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.compressor.postgres.progress_tables import (
    CREATE_STATEMENTS,
    PROGRESS_TABLES,
    REFERENCE_TABLES,
    WRITTEN_TABLES,
)


@dataclass(frozen=True)
class SavedProgress:
    """The saved progress of a room."""

    shared_rows: tuple[Any, ...] = ()
    """The rows in the tables of Synapse's compressor, to detect changes by another compressor."""
    progress: RoomProgress | None = None
    """Progress of the strategy ``levels``; without levels if only the last group was saved."""
    fault: str | None = None
    """Reason why the saved levels are invalid."""
    best_up_to: int | None = None
    """ID of the room's newest group when ``best`` last compressed the room."""
    unfinished_chunk_end: int | None = None
    """ID of the last group of the partly written chunk."""

    def require_levels(self) -> None:
        """Require that the room's saved levels are valid.

        :raises RoomSkippedError: when the saved levels are invalid.
        """
        if self.fault:
            raise RoomSkippedError(
                f"The room's rows in state_compressor_state are invalid: {self.fault}. Delete them, and the room's "
                "rows in state_compressor_progress, to compress the room from the beginning. Or use the strategy "
                "best, which needs no levels."
            )


def list_existing_tables(connection: Connection[Any]) -> set[str]:
    """Return the progress tables that exist."""
    tables = connection.execute(
        "SELECT t FROM unnest(%s::text[]) t WHERE to_regclass(t) IS NOT NULL", [list(PROGRESS_TABLES)]
    )
    return {name for (name,) in tables}


def create_tables(connection: Connection[Any]) -> None:
    """Create missing progress tables."""
    if list_existing_tables(connection) != set(PROGRESS_TABLES):
        for statement in CREATE_STATEMENTS:
            connection.execute(statement.encode())


def read_progress(connection: Connection[Any], room_id: str) -> SavedProgress:
    """Read the saved progress of a room."""
    existing = list_existing_tables(connection)
    saved = SavedProgress()
    if existing.issuperset(REFERENCE_TABLES):
        levels, last = _read_shared_rows(connection, room_id)
        saved = replace(saved, shared_rows=(levels, last))
        try:
            parsed: Levels = levels_from_rows(levels)
        except ValueError as error:
            saved = replace(saved, fault=str(error))
        else:
            if last is not None:
                saved = replace(saved, progress=RoomProgress(last, parsed))
    if "lakehouse_compressor_progress" in existing:
        row = connection.execute(
            "SELECT CASE strategy WHEN 'best' THEN last_compressed END, chunk_end FROM lakehouse_compressor_progress"
            " WHERE room_id = %s",
            [room_id],
        ).fetchone()
        if row:
            saved = replace(saved, best_up_to=row[0], unfinished_chunk_end=row[1])
    return saved


def _read_shared_rows(connection: Connection[Any], room_id: str) -> tuple[tuple[Any, ...], int | None]:
    levels = connection.execute(
        "SELECT level_num, max_size, current_length, current_head FROM state_compressor_state WHERE room_id = %s"
        " ORDER BY level_num",
        [room_id],
    ).fetchall()
    last = connection.execute(
        "SELECT last_compressed FROM state_compressor_progress WHERE room_id = %s", [room_id]
    ).fetchone()
    return tuple(levels), last[0] if last else None


def is_unchanged(connection: Connection[Any], room_id: str, saved: SavedProgress) -> bool:
    """Return whether no other compressor changed the progress of the room."""
    return _read_shared_rows(connection, room_id) == (saved.shared_rows or ((), None))


def save_progress(
    connection: Connection[Any], room_id: str, saved: SavedProgress, strategy: Strategy, written_until: int
) -> None:
    """Write the progress of a room to the lakehouse's table, in the open transaction.

    :param written_until: ID of the last group that was written.
    """
    connection.execute(
        "INSERT INTO lakehouse_compressor_progress VALUES (%s, %s, %s, %s, %s) ON CONFLICT (room_id) DO UPDATE"
        " SET strategy = excluded.strategy, last_compressed = excluded.last_compressed,"
        " chunk_end = excluded.chunk_end, written_up_to = excluded.written_up_to",
        [room_id, strategy.value, saved.best_up_to, saved.unfinished_chunk_end, written_until],
    )


def save_levels(connection: Connection[Any], room_id: str, saved: SavedProgress, chunk: ChunkResult) -> SavedProgress:
    """Save the levels after a complete chunk, as Synapse's compressor does; return the saved progress."""
    levels = [
        (number, level.size, level.length, level.head) for number, level in enumerate(chunk.progress.levels, start=1)
    ]
    connection.execute("DELETE FROM state_compressor_state WHERE room_id = %s", [room_id])
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO state_compressor_state VALUES (%s, %s, %s, %s, %s)", [(room_id, *level) for level in levels]
        )
    connection.execute(
        "INSERT INTO state_compressor_progress VALUES (%s, %s) ON CONFLICT (room_id) DO UPDATE"
        " SET last_compressed = excluded.last_compressed",
        [room_id, chunk.progress.last],
    )
    return replace(saved, shared_rows=(tuple(levels), chunk.progress.last), progress=chunk.progress)


def delete_progress(connection: Connection[Any], room_id: str) -> None:
    """Delete the progress of a room in the open transaction, as if the room had never been compressed."""
    for table in WRITTEN_TABLES:
        query = sql.SQL("DELETE FROM {} WHERE room_id = %s").format(sql.Identifier(table))
        connection.execute(query, [room_id])
