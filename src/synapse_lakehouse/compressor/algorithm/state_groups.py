"""State groups as they are stored: each one's predecessor, and its rows."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit

NONE = -1
"""Stands for no predecessor and for no event."""


@dataclass(frozen=True)
class StateGroups:
    """State groups in ascending order of their ids; group ``i`` has the rows from ``starts[i]`` up to ``starts[i+1]``.

    The state of a group is its predecessor's, with its rows added or put in the place of what had the same key.
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
        """One more than the greatest code of a key."""
        return int(self.keys.max()) + 1 if len(self.keys) else 0

    def prev_ids(self) -> Int64Array:
        """Id of each group's predecessor, or ``NONE``."""
        return np.where(self.prev == NONE, NONE, self.ids[self.prev]) if len(self) else self.prev

    def changed(self, other: "StateGroups") -> BoolArray:
        """Which of the groups are stored otherwise in ``other``, which is made of the same states.

        Deltas of one group against one base differ only by redundant rows, so their numbers tell them apart.
        """
        return cast(BoolArray, (self.prev != other.prev) | (self.rows != other.rows))

    def chain_nodes(self) -> Int64Array:
        """Number of groups that have to be read for the state of each one, itself included."""
        return _chain_nodes(self.prev)


def index_groups(
    ids: Int64Array,
    edge_groups: Int64Array,
    edge_prevs: Int64Array,
    row_groups: Int64Array,
    row_keys: Int32Array,
    row_events: Int32Array,
) -> tuple[StateGroups, StateGroups, BoolArray]:
    """The groups of three tables in any order, the same groups with their copies, and which ``state_groups`` has.

    A group known only from the edges counts as one without rows of its own unless it has some; rows of groups that
    nothing mentions are left out. Of equal rows of a group, as nothing keeps them apart there, the first counts
    and the others are copies.

    :raises InvalidStateGroupsError: for a group with two predecessors, a predecessor that is not older than its
        group (which covers cycles), or two events for one key of a group.
    """
    every = np.unique(np.concatenate([ids, edge_groups, edge_prevs]))
    prev = np.full(len(every), NONE)
    at = np.searchsorted(every, edge_groups)
    if len(at) != len(np.unique(at)):
        twice = every[np.flatnonzero(np.bincount(at) > 1)[0]]
        raise InvalidStateGroupsError(f"state group {twice} has more than one predecessor")
    if (newer := edge_prevs >= edge_groups).any():
        edge = int(np.flatnonzero(newer)[0])
        raise InvalidStateGroupsError(
            f"state group {edge_groups[edge]} has the predecessor {edge_prevs[edge]}, which is not older"
        )
    prev[at] = np.searchsorted(every, edge_prevs)
    where = np.minimum(np.searchsorted(every, row_groups), max(len(every) - 1, 0))
    known = every[where] == row_groups if len(every) else np.zeros(len(row_groups), bool)
    if not known.all():
        where, row_keys, row_events = where[known], row_keys[known], row_events[known]
    if (np.diff(where) < 0).any():
        order = np.argsort(where, kind="stable")
        where, row_keys, row_events = where[order], row_keys[order], row_events[order]
    key_count = int(row_keys.max()) + 1 if len(row_keys) else 0
    repeats, contradiction = _repeats(where, row_keys, row_events, key_count)
    if contradiction != NONE:
        raise InvalidStateGroupsError(f"state group {every[contradiction]} has two events for one type and state key")

    def chosen(rows: BoolArray) -> StateGroups:
        starts = np.searchsorted(where[rows], np.arange(len(every) + 1))
        return StateGroups(every, prev, starts, row_keys[rows].astype(np.int32), row_events[rows].astype(np.int32))

    return chosen(~repeats), chosen(repeats), np.isin(every, ids)


@cached_njit
def _repeats(where: Int64Array, keys: Int32Array, events: Int32Array, key_count: int) -> tuple[BoolArray, int]:
    """Which rows say again what one before them said, and the first group that contradicts itself."""
    last = np.full(key_count, NONE)
    repeats = np.zeros(len(where), np.bool_)
    for row in range(len(where)):
        before = last[keys[row]]
        if before != NONE and where[before] == where[row]:
            if events[before] != events[row]:
                return repeats, where[row]
            repeats[row] = True
        else:
            last[keys[row]] = row
    return repeats, NONE


@cached_njit
def _chain_nodes(prev: Int64Array) -> Int64Array:
    nodes = np.ones(len(prev), np.int64)
    for group in range(len(prev)):
        if prev[group] != NONE:
            nodes[group] = nodes[prev[group]] + 1
    return nodes
