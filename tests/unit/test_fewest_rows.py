"""Compression with the strategy `best`: states never change, rows never grow, chains stay within the limit."""

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.compression.synthetic_rooms import SHAPES, SMALL, Shape, room
from synapse_lakehouse.compressor.algorithm import encode_tables, fewest_rows, level_sizes, levels
from synapse_lakehouse.compressor.algorithm.binomial_checkpointing import (
    assign_line_bases,
    maximum_line_length,
    minimum_line_cost,
)
from synapse_lakehouse.compressor.algorithm.chain_limit import limit_chains
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from tests.support.state_rooms import World, begin_rooms, grow_chain, grow_rooms, worlds

CHAIN_LIMITS = st.sampled_from([1, 2, 3, 5, 20, 100])


WORLDS = worlds(3, 60, 150).map(lambda world: encode_tables.encode_tables(*world.tables())[0].groups())


def select_all(groups: StateGroups) -> np.ndarray:
    """Return a mask that selects all groups."""
    return np.ones(len(groups), bool)


@given(WORLDS, CHAIN_LIMITS)
def test_every_group_keeps_its_state_and_an_older_parent(groups: StateGroups, max_chain: int) -> None:
    compressed = fewest_rows.minimize_rows(groups, select_all(groups), max_chain)
    assert not fingerprint_states(groups).differ(fingerprint_states(compressed)).any()
    assert (compressed.prev < np.arange(len(compressed))).all()


@given(WORLDS, CHAIN_LIMITS)
def test_rows_never_grow_and_chains_keep_the_limit(groups: StateGroups, max_chain: int) -> None:
    compressed = fewest_rows.minimize_rows(groups, select_all(groups), max_chain)
    assert len(compressed.keys) <= len(groups.keys)
    if groups.changed(compressed).any():
        assert compressed.chain_nodes().max() <= max_chain


@given(WORLDS, CHAIN_LIMITS)
def test_a_second_compression_changes_nothing(groups: StateGroups, max_chain: int) -> None:
    compressed = fewest_rows.minimize_rows(groups, select_all(groups), max_chain)
    assert not compressed.changed(fewest_rows.minimize_rows(compressed, select_all(compressed), max_chain)).any()


@given(WORLDS, CHAIN_LIMITS)
def test_long_chains_are_cut_without_changing_a_state(groups: StateGroups, max_chain: int) -> None:
    limited = limit_chains(groups, select_all(groups), max_chain)
    assert limited.chain_nodes().max(initial=0) <= max_chain
    assert not fingerprint_states(groups).differ(fingerprint_states(limited)).any()
    assert (limited.prev[limited.prev != groups.prev] == NONE).all()
    half = np.arange(len(groups)) % 2 == 0
    assert not groups.changed(limit_chains(groups, half, max_chain))[~half].any()


@given(WORLDS, st.data())
def test_groups_out_of_range_are_unchanged(groups: StateGroups, data: st.DataObject) -> None:
    in_range = np.array(data.draw(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups))), bool)
    compressed = fewest_rows.minimize_rows(groups, in_range, 100)
    assert not groups.changed(compressed)[~in_range].any()
    assert compressed.chain_nodes().max(initial=0) <= max(100, groups.chain_nodes().max(initial=0))
    assert not fingerprint_states(groups).differ(fingerprint_states(compressed)).any()


@pytest.mark.parametrize("pending_share", [0.01, 0.3, 1])
def test_pending_groups_hardly_reduce_the_compression(pending_share: float) -> None:
    """A group is pending if Synapse is about to delete it, or if nothing refers to it."""
    groups = encode_tables.encode_tables(*room(Shape(3000, 300, joins=0.2, forks=0.2, merges=0.1), 1))[0].groups()
    is_end = ~np.isin(np.arange(len(groups)), groups.prev)
    pending = is_end & (np.random.default_rng(1).random(len(groups)) < pending_share)
    assert pending.any()
    compressed = fewest_rows.minimize_rows(groups, ~pending, 100)
    assert compressed.chain_nodes().max() <= 100
    assert not groups.changed(compressed)[pending].any()
    assert not fingerprint_states(groups).differ(fingerprint_states(compressed)).any()
    other_rows = ~pending[np.repeat(np.arange(len(groups)), groups.rows)]
    all_compressed = fewest_rows.minimize_rows(groups, select_all(groups), 100)
    assert compressed.rows[~pending].sum() <= 1.3 * all_compressed.rows[~pending].sum()
    assert compressed.rows[~pending].sum() < 0.5 * other_rows.sum()


def test_a_growing_room_retains_few_full_states() -> None:
    """In a growing room, a full state has more rows at the end of a line than at its start."""
    world = World(random.Random(1))
    grow_rooms(world, begin_rooms(world, [grow_chain], 1500), 1500)
    groups = encode_tables.encode_tables(*world.tables())[0].groups()
    by_levels, _ = levels.compress_by_levels(groups, select_all(groups), level_sizes.parse_levels("100,50,25"))
    compressed = fewest_rows.minimize_rows(groups, select_all(groups), 100)
    assert len(compressed.keys) <= 1.1 * len(by_levels.keys)


def test_pieces_of_a_long_line_are_counted_quickly() -> None:
    """With a limit of one group per chain, each group of the line is a piece of its own."""
    line = np.arange(1_000_000)
    sizes = np.full(len(line), 3)
    assert fewest_rows._count_pieces(line, sizes, 1) == (len(line), 3 * len(line))
    pieces, rows = fewest_rows._count_pieces(line, sizes, 2)
    assert (pieces, rows) == (len(line) // 2, 3 * len(line) // 2 + len(line) // 2)


@pytest.mark.parametrize(
    ("shape", "maximum_ratio"),
    [
        (Shape(3000, 1000, joins=0.2), 0.90),
        (Shape(1500, 1500, joins=0.2, forks=0.15, merges=0.14), 0.45),
        (Shape(3000, 100, joins=0.1, active=0.3, backfilled=0.02), 0.85),
        (Shape(1000, 100, joins=0.3, backfilled=0.2), 0.70),
        (SMALL, 0.95),
    ],
)
def test_best_leaves_far_fewer_rows_than_levels(shape: Shape, maximum_ratio: float) -> None:
    groups = encode_tables.encode_tables(*room(shape, 1))[0].groups()
    by_levels, _ = levels.compress_by_levels(groups, select_all(groups), level_sizes.parse_levels("100,50,25"))
    rows_by_levels = min(len(by_levels.keys), len(groups.keys))
    assert len(fewest_rows.minimize_rows(groups, select_all(groups), 100).keys) <= maximum_ratio * rows_by_levels


@given(st.integers(1, 300), st.integers(1, 12))
def test_the_bases_of_a_line_have_the_minimum_cost(length: int, depth: int) -> None:
    line = np.arange(length)
    bases, depths = np.full(length, NONE), np.ones(length, np.int64)
    assign_line_bases(line, depth, bases, depths)
    assert depths.max() <= depth + 1
    assert (bases[1:] >= 0).all()
    assert (depths[1:] == depths[bases[1:]] + 1).all()
    assert (line - bases)[1:].sum() == minimum_line_cost(length, depth)


def test_the_minimum_cost_equals_an_exhaustive_search() -> None:
    """The minimum cost equals that of a search over all positions of the last child of the first node."""

    @cache
    def search_minimum(length: int, depth: int) -> int:
        if length == 1:
            return 0
        if depth == 0:
            return 10**9
        return min(
            search_minimum(child, depth) + child + search_minimum(length - child, depth - 1)
            for child in range(1, length)
        )

    for depth in range(1, 6):
        for length in range(1, 60):
            assert minimum_line_cost(length, depth) == search_minimum(length, depth), (length, depth)


def test_a_tree_has_binomially_many_nodes() -> None:
    assert (maximum_line_length(99, 1), maximum_line_length(99, 2), maximum_line_length(99, 3)) == (100, 5050, 171_700)


def test_the_shapes_of_the_bench_are_the_same_each_time() -> None:
    assert SHAPES
    assert room(SMALL, 5)[2].equals(room(SMALL, 5)[2])
    assert not room(SMALL, 5)[2].equals(room(SMALL, 6)[2])
