"""Unreferenced state groups: find them, and mark them as pending deletion, so that Synapse deletes them."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import Connection, has_table

_BATCH_SIZE: Final = 100

_MARK_PENDING: Final = """
INSERT INTO state_groups_pending_deletion (state_group, insertion_ts)
SELECT id, (extract(epoch FROM statement_timestamp()) * 1000)::bigint FROM state_groups WHERE id = ANY(%(ids)s)
{}
AND NOT EXISTS (SELECT FROM state_group_edges WHERE prev_state_group = id
                AND NOT state_group = ANY(%(ids)s)
                AND NOT state_group IN (SELECT state_group FROM state_groups_pending_deletion))
AND NOT EXISTS (SELECT FROM state_groups_persisting WHERE state_group = id)
ON CONFLICT (state_group) DO NOTHING
"""
"""Marks the groups among ``ids`` that no event, no process and no remaining group references."""

_NOT_OF_EVENT: Final = "AND NOT EXISTS (SELECT FROM event_to_state_groups WHERE state_group = id)"
"""The additional condition if the database also contains the events. If not, the events are read first. Synapse repeats
the check."""


def find_unreferenced(group_ids: Int64Array, in_use: Int64Array, edges: pa.Table) -> Int64Array:
    """Return groups of a room that neither an event nor the chain of a referenced group needs.

    :param group_ids: IDs of the groups of the room.
    :param in_use: IDs of the groups that an event or a group of another room references.
    :param edges: state_group, prev_state_group, at least of these groups.
    """
    is_used = np.isin(group_ids, in_use)
    index_of = {int(group): index for index, group in enumerate(group_ids)}
    # Start at the newest group, so that all deltas of a group come before it.
    edges = edges.sort_by([("state_group", "descending")])
    for group, prev in zip(edges["state_group"].to_pylist(), edges["prev_state_group"].to_pylist(), strict=True):
        if prev in index_of and (group not in index_of or is_used[index_of[group]]):
            is_used[index_of[prev]] = True
    return group_ids[~is_used]


def require_pending_deletion(connection: Connection) -> None:
    """Raise :class:`CompressorError` if Synapse's release cannot mark groups as pending deletion."""
    if not has_table(connection, "state_groups_pending_deletion"):
        raise CompressorError(
            "Synapse deletes unreferenced state groups since release 1.124. Upgrade Synapse and start it once, or "
            "omit --hand-over-unreferenced."
        )


def mark_pending_deletion(
    connection: Connection, groups: Int64Array, find_groups_of_events: Callable[[Sequence[int]], Sequence[int]]
) -> int:
    """Mark ``groups`` as pending deletion, as Synapse does; return how many were marked.

    The newest groups come first, so that no group is deleted before its deltas.

    :param find_groups_of_events: returns the groups that an event references.
    """
    marked = 0
    statement = _MARK_PENDING.format(_NOT_OF_EVENT if has_table(connection, "event_to_state_groups") else "")
    for end in range(len(groups), 0, -_BATCH_SIZE):
        batch = groups[max(end - _BATCH_SIZE, 0) : end].tolist()
        ids = sorted(set(batch) - set(find_groups_of_events(batch)))
        marked += connection.execute(statement.encode(), {"ids": ids}).rowcount
        # Synapse deletes all groups that were marked in the same millisecond in one transaction.
        time.sleep(0.002)
    return marked
