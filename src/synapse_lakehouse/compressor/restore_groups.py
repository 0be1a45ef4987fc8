"""Store groups again as an undo file has them."""

from collections.abc import Callable

import numpy as np

from synapse_lakehouse.compressor import saved_progress
from synapse_lakehouse.compressor.algorithm.compare_states import differing, replaced
from synapse_lakehouse.compressor.algorithm.row_changes import restored
from synapse_lakehouse.compressor.algorithm.state_arrays import Contents
from synapse_lakehouse.compressor.postgres.transaction import Known
from synapse_lakehouse.compressor.postgres.writer import Writer
from synapse_lakehouse.compressor.undo_file import Undo
from synapse_lakehouse.numba_jit import Longs
from synapse_lakehouse.postgres.connection import Connection


def put_back(kept: Undo, right: Contents | None, now: Contents, writer: Writer, known: Known) -> tuple[int, int, Longs]:
    """Store the groups of ``kept`` that are still there as it has them, where they resolve as in ``right`` then.

    What is saved of the room's compression is forgotten: it may be compressed anew.

    :param right: what has the right states, ``now`` if nothing is wrong; None if ``kept`` has them.
    :returns: how many groups were put back, how many were left as they are, and which of these would resolve otherwise.
    """
    possible = groups = kept.possible(now)
    while right and len(groups):
        former = replaced(now, groups, kept.contents(now.groups))
        wrong = np.intersect1d(differing(right, former), groups)
        if not len(wrong):
            break
        groups = np.setdiff1d(groups, wrong)

    def save(connection: Connection, end: int) -> Callable[[], None]:
        saved_progress.forget(connection, kept.room_id)
        return lambda: None

    alone = writer.write(restored((now.edges, now.rows), groups, kept.edges, kept.rows), known, save)
    done = len(groups) - len(alone)
    return done, len(kept.groups) - done, np.setdiff1d(possible, groups)
