"""Groups that nothing needs: found, and handed to Synapse, which deletes them after a while if that is still so."""

import time
from typing import Final

import numpy as np
import pyarrow as pa

from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import Connection

_AT_ONCE: Final = 100

_HAND_OVER: Final = """
INSERT INTO state_groups_pending_deletion (state_group, insertion_ts)
SELECT id, (extract(epoch FROM statement_timestamp()) * 1000)::bigint FROM state_groups WHERE id = ANY(%(ids)s)
AND NOT EXISTS (SELECT FROM event_to_state_groups WHERE state_group = id)
AND NOT EXISTS (SELECT FROM state_group_edges WHERE prev_state_group = id
                AND NOT state_group = ANY(%(ids)s)
                AND NOT state_group IN (SELECT state_group FROM state_groups_pending_deletion))
AND NOT EXISTS (SELECT FROM state_groups_persisting WHERE state_group = id)
ON CONFLICT (state_group) DO NOTHING
"""
"""Those among ``ids`` that are still in nobody's use: no event's, no process's, and no group's that stays."""


def find_unreferenced(of_room: Int64Array, in_use: Int64Array, edges: pa.Table) -> Int64Array:
    """Groups of a room that no group in use rests on, and that are in no use themselves.

    :param of_room: ids of the room's groups.
    :param in_use: ids of those that an event needs, or a group of another room.
    :param edges: state_group, prev_state_group; of the room's groups at least.
    """
    used = np.isin(of_room, in_use)
    place = {int(group): at for at, group in enumerate(of_room)}
    # From the newest on, so that what hangs on a group is known before it.
    edges = edges.sort_by([("state_group", "descending")])
    for group, prev in zip(edges["state_group"].to_pylist(), edges["prev_state_group"].to_pylist(), strict=True):
        if prev in place and (group not in place or used[place[group]]):
            used[place[prev]] = True
    return of_room[~used]


def mark_pending_deletion(connection: Connection, groups: Int64Array) -> int:
    """Mark ``groups`` as Synapse does, the newest first so that no group goes before what hangs on it; how many."""
    marked = 0
    for end in range(len(groups), 0, -_AT_ONCE):
        ids = groups[max(end - _AT_ONCE, 0) : end].tolist()
        marked += connection.execute(_HAND_OVER.encode(), {"ids": ids}).rowcount
        # Synapse deletes what was marked in the same millisecond in one transaction.
        time.sleep(0.002)
    return marked
