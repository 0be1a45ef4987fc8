"""Compression with the strategy `levels`: states never change, and chains have the documented structure."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse.compressor.algorithm import encode_tables
from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult, RoomProgress, compress_chunks
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.level_sizes import ChainLevel, Levels, levels_from_rows, parse_levels
from synapse_lakehouse.compressor.algorithm.levels import compress_by_levels
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from tests.support.state_rooms import State, World, list_edges, resolve_state, worlds

SIZES = st.lists(st.integers(1, 8), min_size=1, max_size=4).map(lambda sizes: tuple(ChainLevel(size) for size in sizes))
CHUNKS = st.sampled_from([3, 20, 100_000])


WORLDS = worlds(4, 40, 120)


def compress(
    world: World, levels: Levels, chunk_size: int, saved_progress: dict[str, RoomProgress] | None = None
) -> tuple[dict[int, int], dict[int, State], list[ChunkResult], encode_tables.CodeTexts]:
    """Return edges and rows by group after the compression, the results of its chunks, and the texts of codes."""
    encoded_tables, names = encode_tables.encode_tables(*world.tables())
    rooms = names.rooms.to_pylist()
    progress = {rooms.index(room): first for room, first in (saved_progress or {}).items()}
    steps = list(compress_chunks(encoded_tables, levels, chunk_size, progress))
    return *content(encoded_tables.groups(), names), steps, names


def content(groups: StateGroups, names: encode_tables.CodeTexts) -> tuple[dict[int, int], dict[int, State]]:
    """Return edges and rows by group."""
    rows: dict[int, State] = {}
    for row in names.rows(groups).to_pylist():
        rows.setdefault(row["state_group"], {})[row["type"], row["state_key"]] = row["event_id"]
    return dict(list_edges(groups)), rows


def build_line(groups: int, keys: int = 5) -> World:
    """Return a room whose groups are one chain, as in Synapse. Each group changes one key of its predecessor."""
    world = World(random.Random(0))
    tip, state = None, {("m.room.create", str(key)): world.event() for key in range(keys)}
    for number in range(groups):
        state = state | {("m.room.create", str(number % keys)): world.event()}
        tip = world.add("!line", state, tip)
    return world


@given(WORLDS, SIZES, CHUNKS)
def test_every_group_keeps_its_state(world: World, levels: Levels, chunk_size: int) -> None:
    edges, rows, _, _ = compress(world, levels, chunk_size)
    for group in world.groups:
        assert resolve_state(edges, rows, group) == resolve_state(world.edges, world.rows, group)


@given(WORLDS, SIZES, CHUNKS)
def test_predecessors_are_older_and_rows_never_grow(world: World, levels: Levels, chunk_size: int) -> None:
    edges, rows, steps, _ = compress(world, levels, chunk_size)
    assert all(prev < group for group, prev in edges.items())
    assert sum(map(len, rows.values())) <= sum(map(len, world.rows.values()))
    assert all(step.is_skipped or step.rows_after <= step.rows_before for step in steps)


@given(WORLDS, SIZES, CHUNKS)
def test_the_order_of_rooms_does_not_matter(world: World, levels: Levels, chunk_size: int) -> None:
    edges, rows, _, _ = compress(world, levels, chunk_size)
    world.groups = dict(sorted(world.groups.items(), key=lambda item: (item[1], -item[0]), reverse=True))
    assert compress(world, levels, chunk_size)[:2] == (edges, rows)


@given(WORLDS, SIZES, CHUNKS)
def test_a_second_run_changes_nothing(world: World, levels: Levels, chunk_size: int) -> None:
    edges, rows, steps, names = compress(world, levels, chunk_size)
    rooms = names.rooms.to_pylist()
    world.edges, world.rows = edges, rows
    second_result = compress(world, levels, chunk_size, {rooms[step.room]: step.progress for step in steps})
    assert (second_result[0], second_result[1], second_result[2]) == (edges, rows, [])


@given(st.integers(1, 400), SIZES)
def test_a_chain_is_at_most_as_long_as_the_sum_of_levels(groups: int, levels: Levels) -> None:
    encoded_tables, _ = encode_tables.encode_tables(*build_line(groups, keys=groups).tables())
    (step,) = compress_chunks(encoded_tables, levels, groups, {})
    if not step.is_skipped:
        assert encoded_tables.groups().chain_nodes().max() <= sum(level.size for level in levels)


def test_the_three_groups_of_the_document_are_unchanged() -> None:
    """The third group lacks a key of the second. It cannot be a delta, because a delta removes no key."""
    alice, bob = ("m.room.member", "@alice"), ("m.room.member", "@bob")
    world = World(random.Random(0))
    first = world.add("!room", {alice: "$1"})
    second = world.add("!room", {alice: "$1", bob: "$3"}, first)
    third = world.add("!room", {bob: "$3"}, second)
    edges, rows, (step,), _ = compress(world, parse_levels("100,50,25"), 500)
    assert edges == {second: first}
    assert rows == {first: {alice: "$1"}, second: {bob: "$3"}, third: {bob: "$3"}}
    assert step.progress == RoomProgress(third, (ChainLevel(100, 3, third), ChainLevel(50), ChainLevel(25)))


def test_two_levels_have_the_structure_of_the_document() -> None:
    """The predecessor of an L2 group is the previous L2 group. The L1 groups after an L2 group are a chain on it."""
    encoded_tables, _ = encode_tables.encode_tables(*build_line(25, keys=60).tables())
    chunk = encoded_tables.take_chunk(0, None, 100, [])
    assert chunk
    groups, _ = compress_by_levels(chunk.groups, chunk.in_range, parse_levels("3,10"))
    # The first three groups have no L2 group before them, and are a chain of their own.
    assert groups.prev_ids()[:3].tolist() == [NONE, 1, 2]
    level_2 = list(range(4, 26, 3))
    assert [int(groups.prev_ids()[group - 1]) for group in level_2] == [NONE, *level_2[:-1]]
    for level_2_group, next_group in pairwise(level_2):
        assert [int(groups.prev_ids()[group - 1]) for group in range(level_2_group + 1, next_group)] == list(
            range(level_2_group, next_group - 1)
        )


def test_one_level_of_100_equals_synapse_s_chains() -> None:
    world = build_line(1000)
    edges, rows, (step,), _ = compress(world, parse_levels("100"), 100_000)
    assert (edges, rows) == (world.edges, world.rows)
    assert step.rows_before == step.rows_after


def test_a_chunk_that_would_grow_is_skipped() -> None:
    world = build_line(20, keys=10)
    edges, rows, steps, _ = compress(world, parse_levels("3,10"), 10)
    assert (edges, rows) == (world.edges, world.rows)
    assert [step.is_skipped for step in steps] == [True, True]
    assert steps[-1].progress == RoomProgress(20, (ChainLevel(3), ChainLevel(10)))


def test_saved_levels_override_configured_levels() -> None:
    world = build_line(40, keys=40)
    saved_progress = {"!line": RoomProgress(30, (ChainLevel(4, 2, 30),))}
    edges, _, (step,), _ = compress(world, parse_levels("100"), 500, saved_progress)
    assert edges[31] == 30
    assert 33 not in edges or step.is_skipped
    assert [level.size for level in step.progress.levels] == ([100] if step.is_skipped else [4])


def test_a_purged_head_restarts_its_level() -> None:
    world = build_line(40)
    for group in range(1, 31):
        del world.groups[group], world.rows[group]
        world.edges.pop(group, None)
    del world.edges[31]
    world.rows[31] = world.states[31]
    edges, rows, _, _ = compress(
        world, parse_levels("100"), 500, {"!line": RoomProgress(30, (ChainLevel(100, 30, 30),))}
    )
    for group in world.groups:
        assert resolve_state(edges, rows, group) == world.states[group]


def test_a_predecessor_that_only_an_edge_names_is_empty() -> None:
    world = World(random.Random(0))
    group = world.add("!room", {("a", ""): "$1"})
    second = world.add("!room", {("a", ""): "$1", ("b", ""): "$2"}, group)
    del world.groups[group], world.rows[group]
    edges, rows, _, _ = compress(world, parse_levels("100"), 500)
    assert resolve_state(edges, rows, second) == {("b", ""): "$2"}


def test_dollar_signs_in_values_are_unchanged() -> None:
    world = World(random.Random(0))
    state = {("$$", "a$$b$"): "$$event"}
    group = world.add("!$$room", state)
    second = world.add("!$$room", state | {("$", "$$"): "$$"}, group)
    edges, rows, _, _ = compress(world, parse_levels("1,2"), 500)
    assert resolve_state(edges, rows, second) == world.states[second]


@pytest.mark.parametrize(
    ("edges", "rows", "reason"),
    [
        ([(2, 1), (1, 2)], [], "not older"),
        ([(1, 3)], [], "not older"),
        ([(2, 2)], [], "not older"),
        ([(3, 1), (3, 2)], [], "more than one predecessor"),
        ([(2, 1), (2, 1)], [], "more than one predecessor"),
        ([], [(1, "t", "k", "$1"), (2, "t", "k", "$1"), (1, "t", "k", "$2")], "two events"),
    ],
)
def test_invalid_groups_are_refused(
    edges: list[tuple[int, int]], rows: list[tuple[int, str, str, str]], reason: str
) -> None:
    with pytest.raises(InvalidStateGroupsError, match=reason):
        encode_tables.encode_tables(*_build_tables([1, 2, 3], edges, rows))


def test_a_repeated_row_counts_once() -> None:
    encoded_tables, _ = encode_tables.encode_tables(
        *_build_tables([1, 2], [(2, 1)], [(2, "t", "k", "$1"), (1, "t", "k", "$1"), (2, "t", "k", "$1")])
    )
    assert encoded_tables.groups().rows.tolist() == [1, 1]


def test_without_groups_there_are_no_chunks() -> None:
    encoded_tables, _ = encode_tables.encode_tables(*_build_tables([], [], []))
    assert list(compress_chunks(encoded_tables, parse_levels("100"), 500, {})) == []


@given(WORLDS)
def test_fingerprints_distinguish_states(world: World) -> None:
    encoded_tables, _ = encode_tables.encode_tables(*world.tables())
    groups = encoded_tables.groups()
    fingerprints = fingerprint_states(groups)
    index_by_fingerprint = {tuple(map(int, fingerprints.fingerprints[index])): index for index in range(len(groups))}
    states = [resolve_state(world.edges, world.rows, int(group)) for group in groups.ids]
    assert fingerprints.sizes.tolist() == [len(state) for state in states]
    assert len(index_by_fingerprint) == len({frozenset(state.items()) for state in states})
    for index, state in enumerate(states):
        assert states[index_by_fingerprint[tuple(map(int, fingerprints.fingerprints[index]))]] == state


@pytest.mark.parametrize("text", ["", "0", "100,0", "-1", "100,,25", "ten", "1.5", "100;50", "٣"])
def test_invalid_levels_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="positive whole numbers"):
        parse_levels(text)


@pytest.mark.parametrize(
    "rows",
    [
        [(2, 10, 0, None)],
        [(1, 10, 0, None), (1, 10, 0, None)],
        [(1, 10, 3, None)],
        [(1, 10, 11, 5)],
        [(0, 10, 0, None)],
    ],
)
def test_invalid_saved_levels_are_refused(rows: list[tuple[int, int, int, int | None]]) -> None:
    with pytest.raises(ValueError, match=r"level \d"):
        levels_from_rows(rows)


def _build_tables(
    ids: list[int], edges: list[tuple[int, int]], rows: list[tuple[int, str, str, str]]
) -> tuple[pa.Table, pa.Table, pa.Table]:
    groups = pa.table({"id": pa.array(ids, pa.int64()), "room_id": pa.array(["!room"] * len(ids), pa.string())})
    edge_columns = np.array(edges, np.int64).reshape(-1, 2)
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return (
        groups,
        pa.table({"state_group": edge_columns[:, 0], "prev_state_group": edge_columns[:, 1]}),
        pa.table(
            [pa.array(columns[0], pa.int64()), *(pa.array(column, pa.string()) for column in columns[1:])],
            ["state_group", "type", "state_key", "event_id"],
        ),
    )
