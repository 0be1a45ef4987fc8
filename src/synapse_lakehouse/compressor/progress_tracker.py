"""Track the progress of compressing a room, saved in each of its transactions."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.row_changes import RowChanges
from synapse_lakehouse.compressor.errors import CompressorRunningError
from synapse_lakehouse.compressor.postgres import progress_store
from synapse_lakehouse.compressor.postgres.room_reader import StoredRoom
from synapse_lakehouse.postgres.connection import Connection


class ProgressTracker:
    """Saves how many changes of a room are written; for ``levels``, also the last complete chunk."""

    def __init__(
        self, room: StoredRoom, strategy: Strategy, chunks: Sequence[ChunkResult], changes: RowChanges
    ) -> None:
        self._room, self._strategy, self._chunks, self._ids = room, strategy, chunks, changes.ids
        self._saved = room.saved
        # Number of changes up to the end of each chunk.
        self._ends = np.searchsorted(changes.ids, [chunk.progress.last for chunk in chunks], side="right")
        self._complete_chunks = 0

    def save(self, connection: Connection, end: int) -> Callable[[], None]:
        """Record, in the open transaction, that the changes up to ``end`` are written.

        Return a function to call after the commit.

        :raises CompressorRunningError: when another compressor changed the progress of the room.
        """
        room_id = self._room.room_id
        if not progress_store.is_unchanged(connection, room_id, self._saved):
            raise CompressorRunningError(
                f"Another compressor works on {room_id}: it changed the progress tables. Written changes are correct "
                "and stay. Run only one compressor at a time."
            )
        saved = self._saved
        complete = int(np.searchsorted(self._ends, end, side="right"))
        if complete > self._complete_chunks:
            saved = progress_store.save_levels(connection, room_id, saved, self._chunks[complete - 1])
        is_done = complete == len(self._chunks) and end == len(self._ids)
        is_in_chunk = (
            not is_done and complete < len(self._chunks) and end > (self._ends[complete - 1] if complete else 0)
        )
        saved = replace(saved, unfinished_chunk_end=self._chunks[complete].progress.last if is_in_chunk else None)
        if is_done and self._strategy is Strategy.BEST:
            saved = replace(saved, best_up_to=self._room.newest)
        written_until = int(self._ids[end - 1]) if end else self._room.newest
        progress_store.save_progress(connection, room_id, saved, self._strategy, written_until)

        def committed() -> None:
            self._saved, self._complete_chunks = saved, complete

        return committed
