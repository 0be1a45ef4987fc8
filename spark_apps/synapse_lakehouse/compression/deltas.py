"""Deltas between state groups, from dense states of the few groups that are compared at a time.

Compiled functions share three arrays: ``states`` (a row for each slot: an event for each key, or ``NONE``), ``held``
(which group each slot holds) and ``used`` (when each slot was used last).
"""

import numpy as np

from synapse_lakehouse.compression.compiled import Codes, Longs, compiled
from synapse_lakehouse.compression.groups import NONE

INFEASIBLE = -1
"""Size of a delta that cannot be: the base has a key that the group lacks, and a delta removes nothing."""
_BLOCK = 64


@compiled
def slot_of(
    group: int, prev: Longs, starts: Longs, keys: Codes, events: Codes,
    states: Codes, held: Longs, used: Longs, path: Longs,
) -> int:  # fmt: skip
    """The slot that holds the state of ``group``, resolved from the nearest group of its chain that one holds."""
    nodes, node, source = 0, group, NONE
    while node != NONE:
        for slot in range(len(held)):
            if held[slot] == node:
                source = slot
        if source != NONE:
            break
        path[nodes] = node
        nodes += 1
        node = prev[node]
    now = used.max() + 1
    if source != NONE:
        used[source] = now
        if nodes == 0:
            return source
    slot = int(used.argmin())
    if source != NONE:
        states[slot] = states[source]
    else:
        states[slot] = NONE
    for step in range(nodes - 1, -1, -1):
        for row in range(starts[path[step]], starts[path[step] + 1]):
            states[slot, keys[row]] = events[row]
    held[slot], used[slot] = group, now + 1
    return slot


@compiled
def delta_size(state: Codes, base: Codes) -> int:
    """Rows of the delta that makes ``state`` from ``base``, or ``INFEASIBLE``."""
    rows, lacking = 0, 0
    for key in range(len(state)):
        rows += state[key] != base[key]
        lacking += (state[key] < 0) & (base[key] >= 0)
    return INFEASIBLE if lacking else rows


@compiled
def write_delta(state: Codes, base: Codes, keys: Codes, events: Codes, row: int) -> int:
    """Write the rows that make ``state`` from ``base`` from position ``row`` on; the position after the last."""
    for start in range(0, len(state), _BLOCK):
        end = min(start + _BLOCK, len(state))
        differing = 0
        for key in range(start, end):
            differing += state[key] != base[key]
        if differing:
            for key in range(start, end):
                if state[key] != base[key]:
                    keys[row], events[row] = key, state[key]
                    row += 1
    return row


@compiled
def with_room(codes: Codes, row: int, more: int) -> Codes:
    """``codes``, or a longer copy, so that ``more`` of them fit from position ``row`` on."""
    if row + more <= len(codes):
        return codes
    longer = np.empty(2 * (row + more), np.int32)
    longer[:row] = codes[:row]
    return longer
