"""State groups as arrays: the predecessor and the rows of each group."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit

NONE = -1
"""Marks a missing predecessor or event."""


@dataclass(frozen=True)
class StateGroups:
    """State groups in ascending order of their IDs; group ``i`` has the rows ``starts[i]`` to ``starts[i + 1]``.

    The state of a group is the state of its predecessor, updated with the group's rows.
    """

    ids: Int64Array
    prev: Int64Array
    """Index of the predecessor in ``ids``, or ``NONE``; always less than the group's own."""
    starts: Int64Array
    keys: Int32Array
    """Code of each row's (type, state_key), from 0."""
    events: Int32Array
    """Code of each row's event_id, from 0."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def rows(self) -> Int64Array:
        """Number of rows of each group."""
        return np.diff(self.starts)

    @property
    def key_count(self) -> int:
        """Number of key codes: the maximum code + 1."""
        return int(self.keys.max()) + 1 if len(self.keys) else 0

    def prev_ids(self) -> Int64Array:
        """Return the ID of the predecessor of each group, or ``NONE``."""
        return np.where(self.prev == NONE, NONE, self.ids[self.prev]) if len(self) else self.prev

    def changed(self, other: "StateGroups") -> BoolArray:
        """Return which groups are stored differently in ``other``. The states must be the same in both.

        Deltas from the same base to the same state differ only in redundant rows, so a comparison of row counts is
        enough.
        """
        return cast(BoolArray, (self.prev != other.prev) | (self.rows != other.rows))

    def chain_nodes(self) -> Int64Array:
        """Return the length of the chain of each group, itself included."""
        return _measure_chains(self.prev)


def index_groups(
    ids: Int64Array,
    edge_groups: Int64Array,
    edge_prevs: Int64Array,
    row_groups: Int64Array,
    row_keys: Int32Array,
    row_events: Int32Array,
) -> tuple[StateGroups, StateGroups, BoolArray]:
    """Index the tables: return the groups, the same groups with only their duplicate rows, and which groups exist.

    A group is in ``state_groups`` or in the edges. A group that is only in the edges no longer exists. Rows of other
    groups are ignored. ``state_groups_state`` has no unique key: the first of equal rows counts, the others are
    duplicates.

    :raises InvalidStateGroupsError: when a group has two predecessors, a predecessor that is not older (this includes
        cycles), or two events for one key.
    """
    all_ids = np.unique(np.concatenate([ids, edge_groups, edge_prevs]))
    prev = np.full(len(all_ids), NONE)
    at = np.searchsorted(all_ids, edge_groups)
    if len(at) != len(np.unique(at)):
        repeated = all_ids[np.flatnonzero(np.bincount(at) > 1)[0]]
        raise InvalidStateGroupsError(f"state group {repeated} has more than one predecessor")
    if (is_newer := edge_prevs >= edge_groups).any():
        edge = int(np.flatnonzero(is_newer)[0])
        raise InvalidStateGroupsError(
            f"state group {edge_groups[edge]} has the predecessor {edge_prevs[edge]}, which is not older"
        )
    prev[at] = np.searchsorted(all_ids, edge_prevs)
    where = np.minimum(np.searchsorted(all_ids, row_groups), max(len(all_ids) - 1, 0))
    is_known = all_ids[where] == row_groups if len(all_ids) else np.zeros(len(row_groups), bool)
    if not is_known.all():
        where, row_keys, row_events = where[is_known], row_keys[is_known], row_events[is_known]
    if (np.diff(where) < 0).any():
        order = np.argsort(where, kind="stable")
        where, row_keys, row_events = where[order], row_keys[order], row_events[order]
    key_count = int(row_keys.max()) + 1 if len(row_keys) else 0
    is_duplicate, contradiction = _find_duplicates(where, row_keys, row_events, key_count)
    if contradiction != NONE:
        raise InvalidStateGroupsError(f"state group {all_ids[contradiction]} has two events for one type and state key")

    def select(rows: BoolArray) -> StateGroups:
        starts = np.searchsorted(where[rows], np.arange(len(all_ids) + 1))
        return StateGroups(all_ids, prev, starts, row_keys[rows].astype(np.int32), row_events[rows].astype(np.int32))

    return select(~is_duplicate), select(is_duplicate), np.isin(all_ids, ids)


@cached_njit
def _find_duplicates(where: Int64Array, keys: Int32Array, events: Int32Array, key_count: int) -> tuple[BoolArray, int]:
    """Return a mask of repeated rows, and the first group with two events for one key, or ``NONE``."""
    last = np.full(key_count, NONE)
    is_duplicate = np.zeros(len(where), np.bool_)
    for row in range(len(where)):
        before = last[keys[row]]
        if before != NONE and where[before] == where[row]:
            if events[before] != events[row]:
                return is_duplicate, where[row]
            is_duplicate[row] = True
        else:
            last[keys[row]] = row
    return is_duplicate, NONE


@cached_njit
def _measure_chains(prev: Int64Array) -> Int64Array:
    nodes = np.ones(len(prev), np.int64)
    for group in range(len(prev)):
        if prev[group] != NONE:
            nodes[group] = nodes[prev[group]] + 1
    return nodes
