"""Reused intervals equal newly resolved ones."""

import random
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_lakehouse.room_state.group_tree import NumberedGroups, number_groups
from synapse_lakehouse.room_state.reuse_resolved import ReusableState, find_reusable_state
from synapse_lakehouse.room_state.state_intervals import INTERVAL_KEY, flatten_intervals
from tests.support.state_rooms import World, worlds

COLUMNS = (*INTERVAL_KEY, "first_position", "last_position", "event_id")
Row = tuple[str, str, str, int, int, str]


def _forest(world: World) -> NumberedGroups:
    groups, edges, _ = world.tables()
    return number_groups(groups, edges)


def _ranged(world: World, nodes: pa.Table) -> list[Row]:
    return [
        (node["room_id"], *key, node["position"], node["last_position"], event)
        for node in nodes.to_pylist()
        for key, event in world.rows.get(node["state_group"], {}).items()
    ]


def _flat(rows: Iterable[Row]) -> list[Row]:
    ordered = sorted(rows, key=lambda row: (*row[:4], row[5]))
    kinds = [pa.string()] * 3 + [pa.int64()] * 2 + [pa.string()]
    values = list(zip(*ordered, strict=True)) or [()] * len(COLUMNS)
    table = pa.table([pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)], COLUMNS)
    return [tuple(row.values()) for batch in flatten_intervals(table.to_batches()) for row in batch.to_pylist()]


def _amended(world: World, before: list[Row], same: ReusableState) -> list[Row]:
    untouched = set(same.unchanged_rooms.to_pylist())
    stays = []
    for run in same.runs.to_pylist():
        first, last, shift = run["first_position"], run["last_position"], run["shift"]
        stays += [
            (*row[:3], max(row[3], first) + shift, min(row[4], last) + shift, row[5])
            for row in before
            if row[0] == run["room_id"] and row[0] not in untouched and row[3] <= last and row[4] >= first
        ]
    return [row for row in before if row[0] in untouched] + _flat([*stays, *_ranged(world, same.new_nodes)])


def _change(world: World, rng: random.Random, times: int) -> set[int]:
    """Apply random changes, and return the groups whose rows differ."""
    changed = set()
    for _ in range(times):
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
def test_reused_intervals_equal_new_ones(world: World, seed: int, times: int) -> None:
    _hold(world, seed, times)


@pytest.mark.heavy
@settings(max_examples=2000)
@given(worlds(3, 40, 120), *CHANGES)
def test_reused_intervals_equal_new_ones_in_larger_rooms(world: World, seed: int, times: int) -> None:
    _hold(world, seed, times)


def _hold(world: World, seed: int, times: int) -> None:
    rng = random.Random(seed)
    forest = _forest(world)
    before = _flat(_ranged(world, forest.nodes))
    for _ in range(3):
        positions = forest.nodes.filter(forest.nodes["is_group"]).drop_columns("is_group")
        changed = _change(world, rng, times)
        forest = _forest(world)
        same = find_reusable_state(positions, forest.nodes, pa.array(changed, pa.int64()))
        anew = _flat(_ranged(world, forest.nodes))
        assert sorted(_amended(world, before, same)) == sorted(anew)
        if not times:
            assert set(same.unchanged_rooms.to_pylist()) | set(same.new_nodes["room_id"].to_pylist()) == set(
                forest.nodes["room_id"].to_pylist()
            )
        before = anew


def test_only_the_last_tree_of_a_room_is_resolved_again() -> None:
    def numbered(edges: dict[int, int], last: int) -> pa.Table:
        groups = pa.table({"id": pa.array(range(1, last + 1)), "room_id": ["!a"] * last})
        table = {"state_group": pa.array(edges, pa.int64()), "prev_state_group": pa.array(edges.values(), pa.int64())}
        return number_groups(groups, pa.table(table)).nodes

    before = numbered({2: 1, 4: 3, 6: 5}, 6)
    now = numbered({2: 1, 4: 3, 6: 5, 7: 6}, 7)
    same = find_reusable_state(before.drop_columns("is_group"), now, pa.array([7], pa.int64()))
    assert sorted(same.new_nodes["state_group"].to_pylist()) == [5, 6, 7]
    assert same.runs.to_pylist() == [{"room_id": "!a", "first_position": 0, "last_position": 3, "shift": 0}]
    assert same.unchanged_rooms.to_pylist() == []

    # One that grows in the middle shifts those after it.
    now = numbered({2: 1, 4: 3, 6: 5, 7: 2}, 7)
    same = find_reusable_state(before.drop_columns("is_group"), now, pa.array([], pa.int64()))
    assert same.runs.to_pylist() == [{"room_id": "!a", "first_position": 2, "last_position": 5, "shift": 1}]
