"""The state of a group, looked up by position, equals the state from its chain."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse import catalogue
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.room_state.group_tree import NumberedGroups, StateGroupFault, number_groups
from synapse_lakehouse.room_state.state_intervals import INTERVAL_KEY, flatten_intervals
from tests.support.state_rooms import State, World, resolved, worlds

SCHEMA = get_arrow_schema(next(table for table in catalogue.load_state_tables() if table.name == "state_intervals"))


def _forest(groups: dict[int, str], edges: list[tuple[int, int]]) -> NumberedGroups:
    return number_groups(
        pa.table({"id": pa.array(groups, pa.int64()), "room_id": pa.array(groups.values(), pa.string())}),
        pa.table(
            {
                "state_group": pa.array([first for first, _ in edges], pa.int64()),
                "prev_state_group": pa.array([first for _, first in edges], pa.int64()),
            }
        ),
    )


def _intervals(forest: NumberedGroups, rows: dict[int, State], batch: int = 1 << 16) -> list[dict[str, object]]:
    ranged = [
        {"room_id": node["room_id"], "type": key[0], "state_key": key[1], "event_id": event}
        | {"first_position": node["position"], "last_position": node["last_position"]}
        for node in forest.nodes.to_pylist()
        for key, event in rows.get(node["state_group"], {}).items()
    ]
    ranged.sort(key=lambda row: tuple(row[name] for name in (*INTERVAL_KEY, "first_position", "event_id")))
    table = pa.Table.from_pylist(ranged, schema=SCHEMA)
    return [row for actual in flatten_intervals(table.to_batches(max_chunksize=batch)) for row in actual.to_pylist()]


def _states(forest: NumberedGroups, intervals: list[dict[str, object]]) -> dict[int, State]:
    """The state of every group, by the intervals."""
    nodes = [node for node in forest.nodes.to_pylist() if node["is_group"]]
    states: dict[int, State] = {node["state_group"]: {} for node in nodes}
    for node in nodes:
        for row in intervals:
            if row["room_id"] == node["room_id"] and row["first_position"] <= node["position"] <= row["last_position"]:
                key = (str(row["type"]), str(row["state_key"]))
                assert key not in states[node["state_group"]], "two intervals hold at once"
                states[node["state_group"]][key] = str(row["event_id"])
    return states


@given(worlds(3, 40, 120), st.sampled_from([1, 2, 7, 1 << 16]))
def test_every_group_has_the_state_that_its_chain_gives(world: World, batch: int) -> None:
    forest = _forest(world.groups, list(world.edges.items()))
    intervals = _intervals(forest, world.rows, batch)
    assert _states(forest, intervals) == {group: resolved(world.edges, world.rows, group) for group in world.groups}
    numbered = forest.nodes.to_pylist()
    assert len({(node["room_id"], node["position"]) for node in numbered}) == len(numbered)
    nodes = {(node["room_id"], node["state_group"]) for node in numbered}
    rows = sum(len(world.rows.get(group, {})) for _, group in nodes)
    assert len(intervals) <= max(2 * rows - 1, 0)


@given(worlds(2, 30, 60))
def test_positions_do_not_depend_on_the_order_of_rows(world: World) -> None:
    forwards = _forest(world.groups, list(world.edges.items()))
    backwards = _forest(dict(reversed(world.groups.items())), list(reversed(world.edges.items())))
    assert forwards.nodes == backwards.nodes


def test_a_line_of_wholes_is_one_interval() -> None:
    """Synapse stores the full state after 100 groups; intervals of unchanged pieces continue."""
    state: State = {("m.room.create", ""): "$create", ("m.room.name", ""): "$name"}
    forest = _forest({1: "!room", 2: "!room", 3: "!room"}, [])
    intervals = _intervals(forest, {1: state, 2: state, 3: state | {("m.room.name", ""): "$other"}})
    assert [(row["event_id"], row["first_position"], row["last_position"]) for row in intervals] == [
        ("$create", 0, 2), ("$name", 0, 1), ("$other", 2, 2),
    ]  # fmt: skip


def test_broken_groups_are_reported_and_stop_no_other() -> None:
    groups = {1: "!a", 2: "!a", 3: "!a", 10: "!b", 11: "!b", 12: "!b", 13: "!b", 20: "!c", 21: "!d"}
    edges = [(2, 1), (3, 2), (10, 11), (11, 10), (12, 11), (13, 9), (20, 21), (21, 3), (3, 1)]
    forest = _forest(groups, edges)
    faults = {(row["room_id"], row["state_group"], StateGroupFault(row["fault"])) for row in forest.faults.to_pylist()}
    assert faults == {
        ("!a", 3, StateGroupFault.SEVERAL_PREDECESSORS),
        ("!b", 10, StateGroupFault.CYCLE),
        ("!b", 11, StateGroupFault.CYCLE),
        ("!b", 12, StateGroupFault.CYCLE),
        ("!b", 13, StateGroupFault.MISSING_PREDECESSOR),
        ("!b", 10, StateGroupFault.NEWER_PREDECESSOR),
        ("!c", 20, StateGroupFault.NEWER_PREDECESSOR),
        ("!c", 20, StateGroupFault.OTHER_ROOM),
        ("!d", 21, StateGroupFault.OTHER_ROOM),
    }
    states = _states(forest, _intervals(forest, {group: {("t", ""): f"${group}"} for group in (1, 2, 9, 13, 21)}))
    assert states == {
        1: {("t", ""): "$1"}, 2: {("t", ""): "$2"}, 3: {("t", ""): "$2"}, 13: {("t", ""): "$13"},
        20: {("t", ""): "$21"}, 21: {("t", ""): "$21"},
    }  # fmt: skip


def test_a_chain_of_hundreds_of_thousands_is_numbered() -> None:
    depth = 300_000
    ids = pa.array(range(1, depth + 1), pa.int64())
    forest = number_groups(
        pa.table({"id": ids, "room_id": pa.array(["!deep"] * depth)}),
        pa.table({"state_group": ids[1:], "prev_state_group": ids[:-1]}),
    )
    assert forest.faults.num_rows == 0
    assert forest.nodes["position"].to_pylist() == list(range(depth))
    assert set(forest.nodes["last_position"].to_pylist()) == {depth - 1}


def test_no_groups_are_no_forest() -> None:
    forest = _forest({}, [])
    assert forest.nodes.num_rows == forest.faults.num_rows == 0
    assert list(flatten_intervals([])) == []
