"""Hand groups that nothing needs to Synapse, which deletes them after a while if they are still not needed."""

import time
from typing import Final

from synapse_lakehouse.compiled import Longs
from synapse_lakehouse.source.connection import Connection

_AT_ONCE: Final = 100

_HAND_OVER: Final = """
INSERT INTO state_groups_pending_deletion (state_group, insertion_ts)
SELECT id, %(now)s FROM state_groups WHERE id = ANY(%(ids)s)
AND NOT EXISTS (SELECT FROM event_to_state_groups WHERE state_group = id)
AND NOT EXISTS (SELECT FROM state_group_edges WHERE prev_state_group = id
                AND NOT state_group = ANY(%(ids)s)
                AND NOT state_group IN (SELECT state_group FROM state_groups_pending_deletion))
AND NOT EXISTS (SELECT FROM state_groups_persisting WHERE state_group = id)
ON CONFLICT (state_group) DO NOTHING
"""
"""Those among ``ids`` that are still in nobody's use: no event's, no process's, and no group's that stays."""


def hand_over(connection: Connection, groups: Longs) -> int:
    """Mark ``groups`` as Synapse does, the newest first so that no group goes before what hangs on it; how many."""
    marked = 0
    for end in range(len(groups), 0, -_AT_ONCE):
        ids = groups[max(end - _AT_ONCE, 0) : end].tolist()
        # Synapse deletes what was marked in the same millisecond in one transaction.
        now = time.time_ns() // 1_000_000
        marked += connection.execute(_HAND_OVER.encode(), {"ids": ids, "now": now}).rowcount
        time.sleep(0.002)
    return marked
