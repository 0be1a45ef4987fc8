"""Strategy ``levels``: exactly the edges and rows that Synapse's own state compressor creates."""

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
    """Add the groups ``in_range`` to ``levels``; return all groups, and the levels after that.

    ``groups`` contains all predecessors of its groups, and the heads of the levels with their chains. A level is
    emptied if its head is missing (it was purged) or is not older than the groups to compress.
    """
    first = int(in_range.argmax()) if in_range.any() else len(groups)
    index_of = {int(group_id): index for index, group_id in enumerate(groups.ids[:first])}
    usable = [level if level.head is None or level.head in index_of else ChainLevel(level.size) for level in levels]
    heads = np.array([NONE if level.head is None else index_of[level.head] for level in usable], np.int64)
    lengths = np.array([level.length for level in usable], np.int64)
    sizes = np.array([level.size for level in usable], np.int64)
    prev, starts, keys, events = _apply_levels(
        groups.prev, groups.starts, groups.keys, groups.events, groups.key_count, in_range, sizes, lengths, heads
    )
    after = tuple(
        ChainLevel(level.size, int(length), None if head == NONE else int(groups.ids[head]))
        for level, length, head in zip(usable, lengths, heads, strict=True)
    )
    return replace(groups, prev=prev, starts=starts, keys=keys, events=events), after


@cached_njit
def _next_base(group: int, sizes: Int64Array, lengths: Int64Array, heads: Int64Array) -> int:
    """Add ``group`` to the first level with space, and return its base: the level's old head. Full levels restart."""
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
def _apply_levels(
    prev: Int64Array, starts: Int64Array, keys: Int32Array, events: Int32Array, key_count: int,
    in_range: BoolArray, sizes: Int64Array, lengths: Int64Array, heads: Int64Array,
) -> tuple[Int64Array, Int64Array, Int32Array, Int32Array]:  # fmt: skip
    cache = empty_slots(len(sizes) + _SLOTS_BESIDE_HEADS, len(prev), key_count)
    empty_state = np.full(key_count, NONE, np.int32)
    new_prev, new_starts = prev.copy(), np.zeros(len(prev) + 1, np.int64)
    new_keys, new_events = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
    row = 0
    for group in range(len(prev)):
        base = prev[group]
        if in_range[group]:
            base = _next_base(group, sizes, lengths, heads)
        if base == prev[group]:
            # A group with the right predecessor is copied unchanged, including redundant rows.
            count = starts[group + 1] - starts[group]
            new_keys, new_events = ensure_capacity(new_keys, row, count), ensure_capacity(new_events, row, count)
            new_keys[row : row + count] = keys[starts[group] : starts[group + 1]]
            new_events[row : row + count] = events[starts[group] : starts[group + 1]]
            row += count
        else:
            against, count = empty_state, INFEASIBLE
            while base != NONE:
                against = resolve_state(base, prev, starts, keys, events, cache)
                state = resolve_state(group, prev, starts, keys, events, cache)
                count = count_delta_rows(state, against, key_count)
                if count != INFEASIBLE:
                    break
                base = new_prev[base]
            state = resolve_state(group, prev, starts, keys, events, cache)
            if base == NONE:
                against, count = empty_state, count_delta_rows(state, empty_state, key_count)
            new_keys, new_events = ensure_capacity(new_keys, row, count), ensure_capacity(new_events, row, count)
            row = write_delta(state, against, new_keys, new_events, row)
            new_prev[group] = base
        new_starts[group + 1] = row
    return new_prev, new_starts, new_keys[:row].copy(), new_events[:row].copy()
