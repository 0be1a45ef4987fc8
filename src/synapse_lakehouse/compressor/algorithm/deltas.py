"""Deltas between state groups, from dense states of the few groups that are compared at a time.

Compiled functions share these arrays, made by ``slots``: ``states`` (a row for each slot: an event for each key, or
``NONE``), ``held`` (the group in each slot), ``used`` (when each slot was used last), ``place`` (the slot of each
group, or ``NONE``) and ``path`` (room to walk up a chain).
"""

import numpy as np

from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.numba_jit import Int32Array, Int64Array, cached_njit

INFEASIBLE = -1
"""Size of a delta that cannot be: the base has a key that the group lacks, and a delta removes nothing."""
_BLOCK = 512

StateSlots = tuple[Int32Array, Int64Array, Int64Array, Int64Array, Int64Array]


@cached_njit
def empty_slots(number: int, groups: int, key_count: int) -> StateSlots:
    """Empty slots."""
    states = np.empty((number, key_count), np.int32)
    return states, np.full(number, NONE), np.zeros(number, np.int64), np.full(groups, NONE), np.empty(groups, np.int64)


@cached_njit
def resolve_state(
    group: int, prev: Int64Array, starts: Int64Array, keys: Int32Array, events: Int32Array, slots: StateSlots
) -> Int32Array:
    """The state of ``group``, resolved from the nearest group of its chain that is in a slot; it is now in one itself.

    It stays there while fewer others than there are slots are asked for.
    """
    states, held, used, place, path = slots
    nodes, node = 0, group
    while node != NONE and place[node] == NONE:
        path[nodes] = node
        nodes += 1
        node = prev[node]
    now = used.max() + 1
    if node != NONE:
        used[place[node]] = now
    if nodes:
        slot = int(used.argmin())
        if held[slot] != NONE:
            place[held[slot]] = NONE
        if node != NONE:
            states[slot] = states[place[node]]
        else:
            states[slot] = NONE
        for step in range(nodes - 1, -1, -1):
            for row in range(starts[path[step]], starts[path[step] + 1]):
                states[slot, keys[row]] = events[row]
        held[slot], place[group], used[slot] = group, slot, now + 1
    state: Int32Array = states[place[group]]
    return state


@cached_njit
def count_delta_rows(state: Int32Array, base: Int32Array, most: int) -> int:
    """Rows of the delta that makes ``state`` from ``base``; ``INFEASIBLE`` without one of at most ``most`` rows."""
    rows = 0
    for start in range(0, len(state), _BLOCK):
        ours, theirs = state[start : start + _BLOCK], base[start : start + _BLOCK]
        differing, lacking = np.int32(0), np.int32(0)
        # Without branches and in 32 bits, so that it is done for many keys at once.
        for key in range(len(ours)):
            differing += np.int32(ours[key] != theirs[key])
            lacking |= ours[key] & ~theirs[key]
        rows += int(differing)
        if lacking < 0 or rows > most:
            return INFEASIBLE
    return rows


@cached_njit
def count_own_delta_rows(group: int, starts: Int64Array, keys: Int32Array, events: Int32Array, base: Int32Array) -> int:
    """Rows of the delta of ``group`` against the state of its own predecessor: those stored that are not redundant."""
    rows = 0
    for row in range(starts[group], starts[group + 1]):
        rows += base[keys[row]] != events[row]
    return rows


@cached_njit
def write_delta(state: Int32Array, base: Int32Array, keys: Int32Array, events: Int32Array, row: int) -> int:
    """Write the rows that make ``state`` from ``base`` from position ``row`` on; the position after the last."""
    for start in range(0, len(state), _BLOCK):
        ours, theirs = state[start : start + _BLOCK], base[start : start + _BLOCK]
        differing = np.int32(0)
        for key in range(len(ours)):
            differing += np.int32(ours[key] != theirs[key])
        if differing:
            for key in range(len(ours)):
                if ours[key] != theirs[key]:
                    keys[row], events[row] = start + key, ours[key]
                    row += 1
    return row


@cached_njit
def ensure_capacity(codes: Int32Array, row: int, more: int) -> Int32Array:
    """``codes``, or a longer copy, so that ``more`` of them fit from position ``row`` on."""
    if row + more <= len(codes):
        return codes
    longer = np.empty(2 * (row + more), np.int32)
    longer[:row] = codes[:row]
    return longer
