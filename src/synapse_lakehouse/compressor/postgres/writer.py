"""Apply changes in small transactions that also record progress; back off on lock contention."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import psycopg

from synapse_lakehouse.compressor.algorithm.row_changes import RowChanges
from synapse_lakehouse.compressor.backpressure import Backpressure
from synapse_lakehouse.compressor.postgres.transaction import GroupRooms, TransactionSize, encode_rows, rewrite_groups
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import Connection

_TRIES: Final = 5
"""Number of tries to write a portion; after these, the portion's first group alone is tried as often."""

LOCKED_MESSAGE: Final = "Another session locked some of the room's groups for too long. Compress the room again later."
"""The reason of an incomplete compression if ``GroupWriter.gave_up_on_locks``."""

_CONFLICTS: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.QueryCanceled,
)

T = TypeVar("T")
SaveProgress = Callable[[Connection, int], Callable[[], None]]
"""Records, in the open transaction, that all changes up to an index are written. Call the result after the commit."""


@dataclass
class GroupWriter:
    """Writes changes through one connection."""

    connection: Connection
    backpressure: Backpressure
    report_written: Callable[[int, int], None]
    """Receives, after each transaction, the number of rows and edges that it wrote, and the total number."""
    pace: TransactionSize = field(default_factory=TransactionSize)
    gave_up_on_locks: bool = False
    """Whether the remaining changes were skipped, because another session locked their groups for too long."""

    def write(self, changes: RowChanges, group_rooms: GroupRooms, save: SaveProgress) -> Int64Array:
        """Write ``changes``.

        :returns: IDs of the groups that were skipped: deleted, pending deletion, changed, or locked for too long.
        """
        skipped = [np.empty(0, np.int64)]
        start, tries = 0, 0
        while start < len(changes):
            self.backpressure.wait()
            end = changes.portion_end(start, self.pace.work if tries < _TRIES else 0)
            new_rows = encode_rows(changes, np.arange(start, end), group_rooms)
            started_at = time.monotonic()
            try:
                skipped.append(self._commit(changes, start, end, group_rooms, new_rows, save))
            except _CONFLICTS:
                self.pace.record_conflict(time.monotonic() - started_at)
                tries += 1
                if tries > 2 * _TRIES:
                    self.gave_up_on_locks = True
                    return np.concatenate([*skipped, changes.ids[start:]])
                time.sleep(min(0.05 * 2**tries, 1))
                continue
            self.pace.record_success(time.monotonic() - started_at, changes.work(start, end))
            self.report_written(changes.work(start, end), changes.work(0, len(changes)))
            start, tries = end, 0
        with self.connection.transaction():
            self.connection.execute("set local synchronous_commit = on")
            on_commit = save(self.connection, len(changes))
        on_commit()
        return np.concatenate(skipped)

    def _commit(
        self,
        changes: RowChanges,
        start: int,
        end: int,
        group_rooms: GroupRooms,
        new_rows: memoryview,
        save: SaveProgress,
    ) -> Int64Array:
        with self.connection.transaction():
            skipped = rewrite_groups(self.connection, changes, start, end, group_rooms, new_rows)
            on_commit = save(self.connection, end)
        on_commit()
        return skipped
