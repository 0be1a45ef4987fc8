"""Find, for each state group, the older group with the smallest delta."""

import numpy as np

from synapse_lakehouse.compressor.algorithm.deltas import (
    INFEASIBLE,
    StateSlots,
    count_delta_rows,
    count_own_delta_rows,
    empty_slots,
    resolve_state,
)
from synapse_lakehouse.compressor.algorithm.state_fingerprints import StateFingerprints
from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit

RECENT_GROUPS = 32
"""Each group is compared with this many preceding groups, unless a delta of one row is found first."""
_CHILDREN = 16
"""Each group is also compared with this many of the latest deltas of the best base so far."""


def find_oldest_twins(states: StateFingerprints, in_range: BoolArray) -> Int64Array:
    """Return for each group the oldest group ``in_range`` with the same state; ``NONE`` if it is the oldest itself."""
    candidates = np.flatnonzero(in_range)
    _, first, inverse = np.unique(states.fingerprints[candidates], axis=0, return_index=True, return_inverse=True)
    oldest = np.full(len(in_range), NONE)
    oldest[candidates] = candidates[first][inverse.reshape(-1)]
    oldest[oldest == np.arange(len(oldest))] = NONE
    return oldest


def find_nearest_bases(
    groups: StateGroups, states: StateFingerprints, in_range: BoolArray
) -> tuple[Int64Array, Int64Array]:
    """Return for each group ``in_range`` the index of its base, or ``NONE``, and the rows of the delta.

    Candidates are its predecessor, the latest groups, and the deltas of the best candidate. A candidate with a key that
    the group lacks cannot be a base. In this case the candidate's own base is tried.
    """
    return _search_bases(
        groups.prev, groups.starts, groups.keys, groups.events, groups.key_count,
        in_range, states.sizes, find_oldest_twins(states, in_range),
    )  # fmt: skip


@cached_njit
def _search_bases(
    prev: Int64Array,
    starts: Int64Array,
    keys: Int32Array,
    events: Int32Array,
    key_count: int,
    in_range: BoolArray,
    sizes: Int64Array,
    twin: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    cache = empty_slots(RECENT_GROUPS + _CHILDREN, len(prev), key_count)
    best, rows = np.full(len(prev), NONE), sizes.copy()
    latest_child, next_child = np.full(len(prev), NONE), np.full(len(prev), NONE)
    recent, turn = np.full(RECENT_GROUPS, NONE), 0
    candidates = np.empty(1 + RECENT_GROUPS + _CHILDREN, np.int64)
    compared = np.full(len(prev), NONE)
    for group in range(len(prev)):
        if not in_range[group]:
            continue
        if twin[group] != NONE:
            best[group], rows[group] = twin[group], 0
            continue
        count, base = 0, prev[group]
        if base != NONE and twin[base] != NONE:
            base = twin[base]
        if base != NONE and in_range[base]:
            candidates[0], count = base, 1
        for back in range(1, RECENT_GROUPS + 1):
            candidates[count] = recent[turn - back]
            count += 1
        base = NONE
        while count:
            for number in range(count):
                candidate = candidates[number]
                _compare(group, candidate, prev, starts, keys, events, sizes, cache, best, rows, compared)
            count = 0
            if best[group] != base:
                base = best[group]
                child = latest_child[base]
                while child != NONE and count < _CHILDREN:
                    candidates[count], count = child, count + 1
                    child = next_child[child]
        if base != NONE:
            next_child[group], latest_child[base] = latest_child[base], group
        recent[turn] = group
        turn = (turn + 1) % RECENT_GROUPS
    return best, rows


@cached_njit
def _compare(
    group: int, base: int, prev: Int64Array, starts: Int64Array, keys: Int32Array, events: Int32Array, 
    sizes: Int64Array, cache: StateSlots, best: Int64Array, rows: Int64Array, compared: Int64Array,
) -> None:  # fmt: skip
    """Compare ``group`` with ``base``, or its nearest possible ancestor; update ``best`` and ``rows``."""
    # A group without a twin has a delta of at least one row.
    while base != NONE and compared[base] != group and rows[group] > 1:
        compared[base] = group
        if 0 <= sizes[group] - sizes[base] < rows[group]:
            against = resolve_state(base, prev, starts, keys, events, cache)
            if base == prev[group]:
                count = count_own_delta_rows(group, starts, keys, events, against)
            else:
                state = resolve_state(group, prev, starts, keys, events, cache)
                count = count_delta_rows(state, against, rows[group] - 1)
            if count != INFEASIBLE and count < rows[group]:
                best[group], rows[group] = base, count
                break
        base = best[base]
