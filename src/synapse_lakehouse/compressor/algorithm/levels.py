"""Compression by levels: the trees that Synapse's own state compressor builds, edge for edge and row for row."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from synapse_lakehouse.compressor.algorithm.deltas import (
    INFEASIBLE,
    count_delta_rows,
    empty_slots,
    ensure_capacity,
    resolve_state,
    write_delta,
)
from synapse_lakehouse.compressor.algorithm.level_sizes import ChainLevel, Levels
from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit

_SLOTS_BESIDE_HEADS = 8


def compress_by_levels(
    groups: StateGroups, in_range: BoolArray, levels: Sequence[ChainLevel]
) -> tuple[StateGroups, Levels]:
    """The same groups with those ``in_range`` hung into ``levels``, and the levels after that.

    ``groups`` holds the predecessors of all its groups, and the heads of the levels with theirs. A level whose head is
    not there (it was purged), or not older than what is compressed, starts anew.
    """
    older = int(in_range.argmax()) if in_range.any() else len(groups)
    place = {int(one): index for index, one in enumerate(groups.ids[:older])}
    usable = [level if level.head is None or level.head in place else ChainLevel(level.size) for level in levels]
    heads = np.array([NONE if level.head is None else place[level.head] for level in usable], np.int64)
    lengths = np.array([level.length for level in usable], np.int64)
    sizes = np.array([level.size for level in usable], np.int64)
    prev, starts, keys, events = _hung(
        groups.prev, groups.starts, groups.keys, groups.events, groups.key_count, in_range, sizes, lengths, heads
    )
    after = tuple(
        ChainLevel(level.size, int(length), None if head == NONE else int(groups.ids[head]))
        for level, length, head in zip(usable, lengths, heads, strict=True)
    )
    return replace(groups, prev=prev, starts=starts, keys=keys, events=events), after


@cached_njit
def _next_base(group: int, sizes: Int64Array, lengths: Int64Array, heads: Int64Array) -> int:
    """Take ``group`` into the first level with space, whose head it is hung on; full levels before it restart."""
    base = NONE
    for level in range(len(sizes)):
        if lengths[level] < sizes[level]:
            base = heads[level]
            heads[level] = group
            lengths[level] += 1
            break
        heads[level] = group
        lengths[level] = 1
    return base


@cached_njit
def _hung(
    prev: Int64Array, starts: Int64Array, keys: Int32Array, events: Int32Array, key_count: int,
    in_range: BoolArray, sizes: Int64Array, lengths: Int64Array, heads: Int64Array,
) -> tuple[Int64Array, Int64Array, Int32Array, Int32Array]:  # fmt: skip
    resolved = empty_slots(len(sizes) + _SLOTS_BESIDE_HEADS, len(prev), key_count)
    nothing = np.full(key_count, NONE, np.int32)
    new_prev, new_starts = prev.copy(), np.zeros(len(prev) + 1, np.int64)
    new_keys, new_events = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
    row = 0
    for group in range(len(prev)):
        base = prev[group]
        if in_range[group]:
            base = _next_base(group, sizes, lengths, heads)
        if base == prev[group]:
            # What hangs where it should is kept as it is, redundant rows included.
            count = starts[group + 1] - starts[group]
            new_keys, new_events = ensure_capacity(new_keys, row, count), ensure_capacity(new_events, row, count)
            new_keys[row : row + count] = keys[starts[group] : starts[group + 1]]
            new_events[row : row + count] = events[starts[group] : starts[group + 1]]
            row += count
        else:
            against, count = nothing, INFEASIBLE
            while base != NONE:
                against = resolve_state(base, prev, starts, keys, events, resolved)
                state = resolve_state(group, prev, starts, keys, events, resolved)
                count = count_delta_rows(state, against, key_count)
                if count != INFEASIBLE:
                    break
                base = new_prev[base]
            state = resolve_state(group, prev, starts, keys, events, resolved)
            if base == NONE:
                against, count = nothing, count_delta_rows(state, nothing, key_count)
            new_keys, new_events = ensure_capacity(new_keys, row, count), ensure_capacity(new_events, row, count)
            row = write_delta(state, against, new_keys, new_events, row)
            new_prev[group] = base
        new_starts[group + 1] = row
    return new_prev, new_starts, new_keys[:row].copy(), new_events[:row].copy()
