"""Store groups again as an undo file has them."""

from collections.abc import Callable

import numpy as np

from synapse_lakehouse.compressor import saved_progress
from synapse_lakehouse.compressor.algorithm.compare_states import find_differing_groups, replace_groups
from synapse_lakehouse.compressor.algorithm.row_changes import compute_restoring_changes
from synapse_lakehouse.compressor.algorithm.state_arrays import StateTables
from synapse_lakehouse.compressor.postgres.transaction import GroupRooms
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.undo_file import UndoFile
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import Connection


def restore_groups(
    kept: UndoFile, right: StateTables | None, now: StateTables, writer: GroupWriter, known: GroupRooms
) -> tuple[int, int, Int64Array]:
    """Store the groups of ``kept`` that are still there as it has them, where they resolve as in ``right`` then.

    What is saved of the room's compression is forgotten: it may be compressed anew.

    :param right: what has the right states, ``now`` if nothing is wrong; None if ``kept`` has them.
    :returns: how many groups were put back, how many were left as they are, and which of these would resolve otherwise.
    """
    possible = groups = kept.restorable_groups(now)
    while right and len(groups):
        former = replace_groups(now, groups, kept.contents(now.groups))
        wrong = np.intersect1d(find_differing_groups(right, former), groups)
        if not len(wrong):
            break
        groups = np.setdiff1d(groups, wrong)

    def save(connection: Connection, end: int) -> Callable[[], None]:
        saved_progress.delete_progress(connection, kept.room_id)
        return lambda: None

    alone = writer.write(compute_restoring_changes((now.edges, now.rows), groups, kept.edges, kept.rows), known, save)
    done = len(groups) - len(alone)
    return done, len(kept.groups) - done, np.setdiff1d(possible, groups)
