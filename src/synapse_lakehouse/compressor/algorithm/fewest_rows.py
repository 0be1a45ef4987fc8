"""Strategy ``best``: find deltas with the fewest rows while no chain exceeds a limit.

First, find the nearest base of each group: an older group with a small delta, and without keys that the group lacks.
These bases form a forest, in which each ancestor of a group can be its base. Then apply binomial checkpointing to the
long lines of this forest. On a line of equal steps this gives the minimum number of rows under the limit.
"""

from dataclasses import replace

import numpy as np

from synapse_lakehouse.compressor.algorithm.binomial_checkpointing import (
    INFINITE_COST,
    assign_line_bases,
    minimum_line_cost,
)
from synapse_lakehouse.compressor.algorithm.deltas import (
    count_delta_rows,
    empty_slots,
    ensure_capacity,
    resolve_state,
    write_delta,
)
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.nearest_base import find_nearest_bases
from synapse_lakehouse.compressor.algorithm.state_fingerprints import StateFingerprints, fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit

_SLOTS = 64


def minimize_rows(groups: StateGroups, in_range: BoolArray, max_chain: int) -> StateGroups:
    """Store the groups ``in_range`` in fewer rows. No chain gets longer than ``max_chain`` groups.

    ``groups`` contains all predecessors of its groups. Groups that cannot be improved are not changed, so a second call
    changes nothing. A chain that was too long before stays too long if only more rows can shorten it. Such chains are
    left to ``limit_chains``.

    :raises InvalidStateGroupsError: when a state would change.
    """
    expected = fingerprint_states(groups)
    while True:
        better = _improve(groups, expected, in_range, max_chain)
        if _cost(better, max_chain) >= _cost(groups, max_chain):
            return groups
        if (changed := expected.differ(fingerprint_states(better))).any():
            raise InvalidStateGroupsError(f"state group {groups.ids[changed.argmax()]} would resolve to another state")
        groups = better


def _cost(groups: StateGroups, max_chain: int) -> tuple[int, bool]:
    """Return the number of rows, and whether a chain is too long."""
    return len(groups.keys), bool(groups.chain_nodes().max(initial=0) > max_chain)


def _improve(groups: StateGroups, states: StateFingerprints, in_range: BoolArray, max_chain: int) -> StateGroups:
    base, rows = find_nearest_bases(groups, states, in_range)
    prev = np.where(in_range, _choose_bases(groups.prev, base, rows, states.sizes, in_range, max_chain), groups.prev)
    starts, keys, events = write_rows(
        groups.prev, groups.starts, groups.keys, groups.events, groups.key_count, in_range, prev
    )
    return replace(groups, prev=prev, starts=starts, keys=keys, events=events)


@cached_njit
def _choose_bases(
    prev: Int64Array, nearest: Int64Array, rows: Int64Array, sizes: Int64Array, in_range: BoolArray, max_chain: int
) -> Int64Array:
    """Return a base for each group, an ancestor in the forest of nearest bases; no chain exceeds ``max_chain``.

    The forest is split into lines: each line continues with the child that has the longest line below it. Groups that
    are not ``in_range`` keep their ``prev``. Groups whose chain would get too long get a base nearer to the root.
    """
    count = len(nearest)
    longest, next_in_line = np.ones(count, np.int64), np.full(count, NONE)
    for group in range(count - 1, -1, -1):
        base = nearest[group]
        if base != NONE and longest[group] + 1 > longest[base]:
            longest[base], next_in_line[base] = longest[group] + 1, group
    bases, depths = np.full(count, NONE), np.zeros(count, np.int64)
    line = np.empty(count, np.int64)
    for head in range(count):
        if not in_range[head] or (nearest[head] != NONE and next_in_line[nearest[head]] == head):
            continue
        length, group = 0, head
        while group != NONE:
            line[length] = group
            length, group = length + 1, next_in_line[group]
        pieces, least = _count_pieces(line[:length], sizes, max_chain)
        base, cost = nearest[head], rows[head]
        while base != NONE:
            total = cost + minimum_line_cost(length, max_chain - depths[base] - 1)
            if depths[base] < max_chain and total < least:
                bases[head], least, pieces = base, total, 1
            # ``parent`` is an ancestor of ``base``. A delta against ``parent`` needs at most the rows on the path to
            # ``parent``.
            parent = bases[base]
            while base != parent:
                cost += rows[base]
                base = nearest[base]
        piece = -(-length // pieces)
        for start in range(0, length, piece):
            first = line[start]
            depths[first] = 1 if bases[first] == NONE else depths[bases[first]] + 1
            assign_line_bases(line[start : min(start + piece, length)], max_chain - depths[first], bases, depths)
    below = _out_of_range_below(prev, in_range)
    for group in range(count):
        base = bases[group]
        while base != NONE and depths[base] + 1 + below[group] > max_chain:
            base = bases[base]
        bases[group], depths[group] = base, 1 if base == NONE else depths[base] + 1
    return bases


@cached_njit
def _out_of_range_below(prev: Int64Array, in_range: BoolArray) -> Int64Array:
    """Return for each group the length of the longest chain of groups below it that are not ``in_range``."""
    below = np.zeros(len(prev), np.int64)
    for group in range(len(prev) - 1, -1, -1):
        if prev[group] != NONE and not in_range[group]:
            below[prev[group]] = max(below[prev[group]], below[group] + 1)
    return below


@cached_njit
def _count_pieces(line: Int64Array, sizes: Int64Array, max_chain: int) -> tuple[int, int]:
    """Return the number of pieces with which a line has the fewest rows, and this number of rows.

    Each piece starts with a full state.
    """
    length = len(line)
    best, least = 1, length * (sizes[line[length - 1]] + INFINITE_COST)
    number = 1
    while number <= length // max_chain + 1:
        piece = -(-length // number)
        total = 0
        for start in range(0, length, piece):
            total += sizes[line[start]] + minimum_line_cost(min(piece, length - start), max_chain - 1)
        if total < least:
            best, least = number, total
        # The next number of pieces that makes a piece shorter.
        number = -(-length // (piece - 1)) if piece > 1 else length + 2
    return best, least


@cached_njit
def write_rows(
    prev: Int64Array,
    starts: Int64Array,
    keys: Int32Array,
    events: Int32Array,
    key_count: int,
    in_range: BoolArray,
    bases: Int64Array,
) -> tuple[Int64Array, Int32Array, Int32Array]:
    """Return starts, keys and events of all groups, with the groups ``in_range`` as deltas of ``bases``."""
    cache = empty_slots(_SLOTS, len(prev), key_count)
    empty_state = np.full(key_count, NONE, np.int32)
    new_starts = np.zeros(len(prev) + 1, np.int64)
    new_keys, new_events = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
    row = 0
    for group in range(len(prev)):
        if in_range[group] and bases[group] != prev[group]:
            against = empty_state
            if bases[group] != NONE:
                against = resolve_state(bases[group], prev, starts, keys, events, cache)
            state = resolve_state(group, prev, starts, keys, events, cache)
            count = count_delta_rows(state, against, key_count)
            new_keys, new_events = ensure_capacity(new_keys, row, count), ensure_capacity(new_events, row, count)
            row = write_delta(state, against, new_keys, new_events, row)
        else:
            count = starts[group + 1] - starts[group]
            new_keys, new_events = ensure_capacity(new_keys, row, count), ensure_capacity(new_events, row, count)
            against = empty_state
            if in_range[group] and prev[group] != NONE:
                against = resolve_state(prev[group], prev, starts, keys, events, cache)
            for stored in range(starts[group], starts[group + 1]):
                if against[keys[stored]] != events[stored]:
                    new_keys[row], new_events[row] = keys[stored], events[stored]
                    row += 1
        new_starts[group + 1] = row
    return new_starts, new_keys[:row].copy(), new_events[:row].copy()
