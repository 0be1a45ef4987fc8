"""How far rooms are compressed, as the tables of progress say."""

from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection, sql

from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult, RoomProgress
from synapse_lakehouse.compressor.algorithm.level_sizes import Levels, levels_from_rows
from synapse_lakehouse.compressor.algorithm.settings import Strategy
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.compressor.postgres.progress_tables import (
    CREATE_STATEMENTS,
    PROGRESS_TABLES,
    REFERENCE_TABLES,
    WRITTEN_TABLES,
)


@dataclass(frozen=True)
class SavedProgress:
    """What is saved of one room."""

    reference: tuple[Any, ...] = ()
    """The reference's rows, to be compared: another compressor changes them."""
    progress: RoomProgress | None = None
    """How far the levels are; the levels are empty where only the last group is known."""
    fault: str | None = None
    """Why nobody can go on from its levels, where no compressor writes such."""
    best_up_to: int | None = None
    """The newest group when the room was last brought to the fewest rows."""
    unfinished_chunk_end: int | None = None
    """Last group of the chunk that is stored in part."""

    def require_levels(self) -> None:
        """Refuse levels that cannot be.

        :raises RoomSkippedError: saying what to do about them.
        """
        if self.fault:
            raise RoomSkippedError(
                f"What state_compressor_state says of it cannot be: {self.fault}. Delete its rows there and in "
                "state_compressor_progress, and it is compressed from its beginning; or compress it with the strategy "
                "best, which needs no levels."
            )


def list_existing_tables(connection: Connection[Any]) -> set[str]:
    """Which of the tables are there."""
    found = connection.execute(
        "SELECT t FROM unnest(%s::text[]) t WHERE to_regclass(t) IS NOT NULL", [list(PROGRESS_TABLES)]
    )
    return {name for (name,) in found}


def create_tables(connection: Connection[Any]) -> None:
    """Create the tables that are not there; the first compression of a database does."""
    if list_existing_tables(connection) != set(PROGRESS_TABLES):
        for statement in CREATE_STATEMENTS:
            connection.execute(statement.encode())


def read_progress(connection: Connection[Any], room_id: str) -> SavedProgress:
    """What is saved of a room."""
    there = list_existing_tables(connection)
    saved = SavedProgress()
    if there.issuperset(REFERENCE_TABLES):
        levels, last = _reference(connection, room_id)
        saved = replace(saved, reference=(levels, last))
        try:
            known: Levels = levels_from_rows(levels)
        except ValueError as error:
            saved = replace(saved, fault=str(error))
        else:
            if last is not None:
                saved = replace(saved, progress=RoomProgress(last, known))
    if "lakehouse_compressor_progress" in there:
        row = connection.execute(
            "SELECT CASE strategy WHEN 'best' THEN last_compressed END, chunk_end FROM lakehouse_compressor_progress"
            " WHERE room_id = %s",
            [room_id],
        ).fetchone()
        if row:
            saved = replace(saved, best_up_to=row[0], unfinished_chunk_end=row[1])
    return saved


def _reference(connection: Connection[Any], room_id: str) -> tuple[tuple[Any, ...], int | None]:
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
    """Whether nobody else changed what the reference's tables say of the room."""
    return _reference(connection, room_id) == (saved.reference or ((), None))


def save_progress(
    connection: Connection[Any], room_id: str, saved: SavedProgress, strategy: Strategy, written: int
) -> None:
    """Write what is saved of a room, in the transaction that is open.

    :param written: id of the last group that was written.
    """
    connection.execute(
        "INSERT INTO lakehouse_compressor_progress VALUES (%s, %s, %s, %s, %s) ON CONFLICT (room_id) DO UPDATE"
        " SET strategy = excluded.strategy, last_compressed = excluded.last_compressed,"
        " chunk_end = excluded.chunk_end, written_up_to = excluded.written_up_to",
        [room_id, strategy.value, saved.best_up_to, saved.unfinished_chunk_end, written],
    )


def save_levels(connection: Connection[Any], room_id: str, saved: SavedProgress, step: ChunkResult) -> SavedProgress:
    """Write the levels after a chunk that is stored now as the reference does; what is then to be found."""
    levels = [
        (number, level.size, level.length, level.head) for number, level in enumerate(step.progress.levels, start=1)
    ]
    connection.execute("DELETE FROM state_compressor_state WHERE room_id = %s", [room_id])
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO state_compressor_state VALUES (%s, %s, %s, %s, %s)", [(room_id, *level) for level in levels]
        )
    connection.execute(
        "INSERT INTO state_compressor_progress VALUES (%s, %s) ON CONFLICT (room_id) DO UPDATE"
        " SET last_compressed = excluded.last_compressed",
        [room_id, step.progress.last],
    )
    return replace(saved, reference=(tuple(levels), step.progress.last), progress=step.progress)


def delete_progress(connection: Connection[Any], room_id: str) -> None:
    """Let the room be as one that was never compressed, in the transaction that is open."""
    for table in WRITTEN_TABLES:
        query = sql.SQL("DELETE FROM {} WHERE room_id = %s").format(sql.Identifier(table))
        connection.execute(query, [room_id])
