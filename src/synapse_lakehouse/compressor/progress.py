"""How far the compression of a room is, saved with every transaction that it makes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from synapse_lakehouse.compressor import saved_progress
from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult
from synapse_lakehouse.compressor.algorithm.row_changes import RowChanges
from synapse_lakehouse.compressor.algorithm.settings import Strategy
from synapse_lakehouse.compressor.errors import CompressorRunningError
from synapse_lakehouse.compressor.postgres.room_reader import StoredRoom
from synapse_lakehouse.postgres.connection import Connection


class ProgressTracker:
    """Saves the progress of writing the changes of a room: for levels, the last chunk that is stored as a whole."""

    def __init__(self, room: StoredRoom, strategy: Strategy, steps: Sequence[ChunkResult], changes: RowChanges) -> None:
        self._room, self._strategy, self._steps, self._ids = room, strategy, steps, changes.ids
        self._saved = room.saved
        # Changes up to the end of each step.
        self._ends = np.searchsorted(changes.ids, [step.progress.last for step in steps], side="right")
        self._stored = 0

    def save(self, connection: Connection, end: int) -> Callable[[], None]:
        """Save, in the transaction that is open, that the changes up to ``end`` are stored; call the result after it.

        :raises CompressorRunningError: when somebody else changed what is saved of the room.
        """
        room_id = self._room.room_id
        if not saved_progress.is_unchanged(connection, room_id, self._saved):
            raise CompressorRunningError(
                f"Another compressor works on {room_id}: its tables changed. What was stored so far is right and "
                "stays. Let only one of them run."
            )
        now = self._saved
        complete = int(np.searchsorted(self._ends, end, side="right"))
        if complete > self._stored:
            now = saved_progress.save_levels(connection, room_id, now, self._steps[complete - 1])
        is_done = complete == len(self._steps) and end == len(self._ids)
        is_begun = not is_done and complete < len(self._steps) and end > (self._ends[complete - 1] if complete else 0)
        now = replace(now, unfinished_chunk_end=self._steps[complete].progress.last if is_begun else None)
        if is_done and self._strategy is Strategy.BEST:
            now = replace(now, best_up_to=self._room.newest)
        written = int(self._ids[end - 1]) if end else self._room.newest
        saved_progress.save_progress(connection, room_id, now, self._strategy, written)

        def committed() -> None:
            self._saved, self._stored = now, complete

        return committed
