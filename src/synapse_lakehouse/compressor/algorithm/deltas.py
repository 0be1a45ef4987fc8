"""Deltas between state groups, computed from a small cache of dense states.

``empty_slots`` creates the arrays that the compiled functions share. For each slot: ``states`` (an event for each key,
or ``NONE``), ``slot_groups`` (the group in the slot), and ``used`` (time of the last use). Also ``group_slots`` (the
slot of each group, or ``NONE``) and ``path`` (buffer for a chain).
"""

import numpy as np

from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.numba_jit import Int32Array, Int64Array, cached_njit

INFEASIBLE = -1
"""Marks an impossible delta: the base has a key that the group lacks, and a delta cannot remove keys."""
_BLOCK = 512

StateSlots = tuple[Int32Array, Int64Array, Int64Array, Int64Array, Int64Array]


@cached_njit
def empty_slots(number: int, groups: int, key_count: int) -> StateSlots:
    """Create the cache."""
    states = np.empty((number, key_count), np.int32)
    return states, np.full(number, NONE), np.zeros(number, np.int64), np.full(groups, NONE), np.empty(groups, np.int64)


@cached_njit
def resolve_state(
    group: int, prev: Int64Array, starts: Int64Array, keys: Int32Array, events: Int32Array, slots: StateSlots
) -> Int32Array:
    """Resolve the state of ``group`` from its nearest cached predecessor, cache it and return it.

    The least recently used slot is replaced.
    """
    states, slot_groups, used, group_slots, path = slots
    nodes, node = 0, group
    while node != NONE and group_slots[node] == NONE:
        path[nodes] = node
        nodes += 1
        node = prev[node]
    now = used.max() + 1
    if node != NONE:
        used[group_slots[node]] = now
    if nodes:
        slot = int(used.argmin())
        if slot_groups[slot] != NONE:
            group_slots[slot_groups[slot]] = NONE
        if node != NONE:
            states[slot] = states[group_slots[node]]
        else:
            states[slot] = NONE
        for step in range(nodes - 1, -1, -1):
            for row in range(starts[path[step]], starts[path[step] + 1]):
                states[slot, keys[row]] = events[row]
        slot_groups[slot], group_slots[group], used[slot] = group, slot, now + 1
    state: Int32Array = states[group_slots[group]]
    return state


@cached_njit
def count_delta_rows(state: Int32Array, base: Int32Array, maximum: int) -> int:
    """Count the rows of the delta from ``base`` to ``state``; ``INFEASIBLE`` if impossible or above ``maximum``."""
    rows = 0
    for start in range(0, len(state), _BLOCK):
        own, other = state[start : start + _BLOCK], base[start : start + _BLOCK]
        differing, lacking = np.int32(0), np.int32(0)
        # No branches and 32 bits, so that LLVM vectorises the loop.
        for key in range(len(own)):
            differing += np.int32(own[key] != other[key])
            lacking |= own[key] & ~other[key]
        rows += int(differing)
        if lacking < 0 or rows > maximum:
            return INFEASIBLE
    return rows


@cached_njit
def count_own_delta_rows(group: int, starts: Int64Array, keys: Int32Array, events: Int32Array, base: Int32Array) -> int:
    """Return the number of stored rows of ``group`` that its predecessor does not make redundant."""
    rows = 0
    for row in range(starts[group], starts[group + 1]):
        rows += base[keys[row]] != events[row]
    return rows


@cached_njit
def write_delta(state: Int32Array, base: Int32Array, keys: Int32Array, events: Int32Array, row: int) -> int:
    """Write the delta from ``base`` to ``state`` from position ``row`` on; return the position after it."""
    for start in range(0, len(state), _BLOCK):
        own, other = state[start : start + _BLOCK], base[start : start + _BLOCK]
        differing = np.int32(0)
        for key in range(len(own)):
            differing += np.int32(own[key] != other[key])
        if differing:
            for key in range(len(own)):
                if own[key] != other[key]:
                    keys[row], events[row] = start + key, own[key]
                    row += 1
    return row


@cached_njit
def ensure_capacity(codes: Int32Array, row: int, more: int) -> Int32Array:
    """Return ``codes``, or a longer copy with room for ``more`` values from position ``row`` on."""
    if row + more <= len(codes):
        return codes
    longer = np.empty(2 * (row + more), np.int32)
    longer[:row] = codes[:row]
    return longer
