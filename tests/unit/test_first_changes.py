"""Intervals computed from the first change of a room equal those of a full computation."""

import random
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_lakehouse.room_state.first_changes import find_first_changes
from synapse_lakehouse.room_state.group_tree import NumberedGroups, number_groups
from synapse_lakehouse.room_state.state_intervals import INTERVAL_KEY, flatten_intervals
from tests.support.state_rooms import World, worlds

COLUMNS = (*INTERVAL_KEY, "first_position", "last_position", "event_id")
Row = tuple[str, str, str, int, int, str]


def _number_world(world: World) -> NumberedGroups:
    groups, edges, _ = world.tables()
    return number_groups(groups, edges)


def _ranges(world: World, nodes: pa.Table) -> list[Row]:
    return [
        (node["room_id"], *key, node["position"], node["last_position"], event)
        for node in nodes.to_pylist()
        for key, event in world.rows.get(node["state_group"], {}).items()
    ]


def _flatten(rows: Iterable[Row]) -> list[Row]:
    types = [pa.string()] * 3 + [pa.int64()] * 2 + [pa.string()]
    values = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    table = pa.table([pa.array(column, type_) for column, type_ in zip(values, types, strict=True)], COLUMNS)
    return [tuple(row.values()) for batch in flatten_intervals(table.to_batches()) for row in batch.to_pylist()]


def _resolve(world: World, nodes: pa.Table) -> list[Row]:
    return _flatten(sorted(_ranges(world, nodes), key=lambda row: (*row[:4], row[5])))


def _resolve_from(world: World, nodes: pa.Table, before: list[Row], first: dict[str, int]) -> list[Row]:
    """Return the intervals of all rooms; in rooms with a first change, only those from it on are computed."""
    unchanged = [row for row in before if row[0] not in first or row[4] < first[row[0]] - 1]
    ranges = [
        ((*row[:3], row[3], 0, row[5]), (*row[:4], first[row[0]] - 1, row[5]))
        for row in before
        if row[0] in first and row[4] >= first[row[0]] - 1 and row[3] < first[row[0]]
    ]
    ranges += [
        ((*row[:3], max(row[3], first[row[0]]), row[3], row[5]), (*row[:3], max(row[3], first[row[0]]), *row[4:]))
        for row in _ranges(world, nodes)
        if row[0] in first and row[4] >= first[row[0]]
    ]
    return unchanged + _flatten(row for _, row in sorted(ranges))


def _change(world: World, rng: random.Random, change_count: int) -> set[int]:
    """Apply random changes, and return the groups whose rows differ."""
    changed = set()
    for _ in range(change_count):
        groups = sorted(world.groups)
        if not groups:
            break
        group = rng.choice(groups)
        match rng.randrange(6):
            case 0 | 1:
                state = world.states.get(group, {}) | {("m.room.name", ""): world.event()}
                world.nodes.setdefault(group, 1)
                world.states.setdefault(group, {})
                changed.add(world.add(world.groups[group], state, rng.choice([group, None])))
            case 2:
                world.rows[group] = dict(list(world.rows.get(group, {}).items())[1:])
                changed.add(group)
            case 3:
                world.rows.setdefault(group, {})["m.room.topic", ""] = world.event()
                changed.add(group)
            case 4:
                del world.groups[group]
                if rng.random() < 0.5:
                    world.edges.pop(group, None)
                if rng.random() < 0.5:
                    world.rows.pop(group, None)
                    changed.add(group)
            case 5:
                if rng.random() < 0.5:
                    world.edges.pop(group, None)
                else:
                    world.edges[group] = rng.choice(groups)
    return changed


CHANGES = st.integers(0, 2**32), st.integers(0, 6)


@settings(max_examples=40)
@given(worlds(2, 15, 40), *CHANGES)
def test_intervals_equal_a_full_computation(world: World, seed: int, change_count: int) -> None:
    _compare(world, seed, change_count)


@pytest.mark.heavy
@settings(max_examples=2000)
@given(worlds(3, 40, 120), *CHANGES)
def test_intervals_equal_a_full_computation_in_larger_rooms(world: World, seed: int, change_count: int) -> None:
    _compare(world, seed, change_count)


def _compare(world: World, seed: int, change_count: int) -> None:
    rng = random.Random(seed)
    nodes = _number_world(world).nodes
    before = _resolve(world, nodes)
    for _ in range(3):
        positions = nodes.filter(nodes["is_group"]).drop_columns("is_group")
        changed = _change(world, rng, change_count)
        nodes = _number_world(world).nodes
        changes = find_first_changes(positions, nodes, pa.array(changed, pa.int64())).to_pylist()
        first = {row["room_id"]: row["position"] for row in changes}
        after = _resolve(world, nodes)
        assert sorted(_resolve_from(world, nodes, before, first)) == sorted(after)
        before = after


def test_a_group_at_the_end_changes_no_position_before_it() -> None:
    world = World(random.Random(0))
    group = world.add("!a", {("m.room.name", ""): "$1"})
    for number in range(5):
        group = world.add("!a", {("m.room.name", ""): f"$name{number}"}, group)
    world.add("!b", {("m.room.name", ""): "$b"})
    before = _number_world(world).nodes
    world.add("!a", {("m.room.name", ""): "$last"}, group)
    changes = find_first_changes(before.drop_columns("is_group"), _number_world(world).nodes, pa.array([], pa.int64()))
    assert changes.to_pylist() == [{"room_id": "!a", "position": 6}]
