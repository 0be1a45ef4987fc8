"""Write changes in small transactions, each with the progress that it makes, and give way to whoever is in the way."""

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
"""So often a portion is tried, and so often its first group alone."""

LOCKED_MESSAGE: Final = "the rest: somebody holds locks on it for long. Run it again later."
"""Said of a room of which ``Writer.gave_up`` the rest."""

_IN_OUR_WAY: Final = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.QueryCanceled,
)

T = TypeVar("T")
SaveProgress = Callable[[Connection, int], Callable[[], None]]
"""Writes, in the transaction that is open, that all changes up to a place are stored; what it returns is called once
that is committed."""


@dataclass
class GroupWriter:
    """Writes over one connection; what it did so far."""

    connection: Connection
    load: Backpressure
    report_written: Callable[[int, int], None]
    """Told after each transaction how many rows and edges it was about, and of how many."""
    pace: TransactionSize = field(default_factory=TransactionSize)
    gave_up_on_locks: bool = False
    """Whether somebody held locks for so long that the rest was left."""

    def write(self, changes: RowChanges, known: GroupRooms, save: SaveProgress) -> Int64Array:
        """Store all ``changes``, as far as they can be now.

        :returns: ids of the groups that were left alone: gone, about to go, stored otherwise, or locked for long.
        """
        left = [np.empty(0, np.int64)]
        start, tries = 0, 0
        while start < len(changes):
            self.load.wait()
            end = changes.portion_end(start, self.pace.work if tries < _TRIES else 0)
            new_rows = encode_rows(changes, np.arange(start, end), known)
            began = time.monotonic()
            try:
                left.append(self._commit(changes, start, end, known, new_rows, save))
            except _IN_OUR_WAY:
                self.pace.record_conflict(time.monotonic() - began)
                tries += 1
                if tries > 2 * _TRIES:
                    self.gave_up_on_locks = True
                    return np.concatenate([*left, changes.ids[start:]])
                time.sleep(min(0.05 * 2**tries, 1))
                continue
            self.pace.took(time.monotonic() - began, changes.work(start, end))
            self.report_written(changes.work(start, end), changes.work(0, len(changes)))
            start, tries = end, 0
        with self.connection.transaction():
            self.connection.execute("set local synchronous_commit = on")
            saved = save(self.connection, len(changes))
        saved()
        return np.concatenate(left)

    def _commit(
        self, changes: RowChanges, start: int, end: int, known: GroupRooms, new_rows: memoryview, save: SaveProgress
    ) -> Int64Array:
        with self.connection.transaction():
            left = rewrite_groups(self.connection, changes, start, end, known, new_rows)
            saved = save(self.connection, end)
        saved()
        return left
