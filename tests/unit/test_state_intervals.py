"""The state of a group by its position in the intervals equals the state by its chain."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse import catalogue
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.room_state.group_tree import NumberedGroups, StateGroupFault, number_groups
from synapse_lakehouse.room_state.state_intervals import INTERVAL_KEY, flatten_intervals
from tests.support.state_rooms import State, World, resolve_state, worlds

SCHEMA = get_arrow_schema(next(table for table in catalogue.load_state_tables() if table.name == "state_intervals"))


def _number_groups(groups: dict[int, str], edges: list[tuple[int, int]]) -> NumberedGroups:
    return number_groups(
        pa.table({"id": pa.array(groups, pa.int64()), "room_id": pa.array(groups.values(), pa.string())}),
        pa.table(
            {
                "state_group": pa.array([group for group, _ in edges], pa.int64()),
                "prev_state_group": pa.array([prev for _, prev in edges], pa.int64()),
            }
        ),
    )


def _intervals(
    numbered_groups: NumberedGroups, rows: dict[int, State], batch: int = 1 << 16
) -> list[dict[str, object]]:
    range_rows = [
        {"room_id": node["room_id"], "type": key[0], "state_key": key[1], "event_id": event}
        | {"first_position": node["position"], "last_position": node["last_position"]}
        for node in numbered_groups.nodes.to_pylist()
        for key, event in rows.get(node["state_group"], {}).items()
    ]
    range_rows.sort(key=lambda row: tuple(row[name] for name in (*INTERVAL_KEY, "first_position", "event_id")))
    table = pa.Table.from_pylist(range_rows, schema=SCHEMA)
    return [row for flat in flatten_intervals(table.to_batches(max_chunksize=batch)) for row in flat.to_pylist()]


def _states(numbered_groups: NumberedGroups, intervals: list[dict[str, object]]) -> dict[int, State]:
    """Return the state of every group, looked up in the intervals."""
    nodes = [node for node in numbered_groups.nodes.to_pylist() if node["is_group"]]
    states: dict[int, State] = {node["state_group"]: {} for node in nodes}
    for node in nodes:
        for row in intervals:
            if row["room_id"] == node["room_id"] and row["first_position"] <= node["position"] <= row["last_position"]:
                key = (str(row["type"]), str(row["state_key"]))
                assert key not in states[node["state_group"]], "two intervals of a key overlap"
                states[node["state_group"]][key] = str(row["event_id"])
    return states


@given(worlds(3, 40, 120), st.sampled_from([1, 2, 7, 1 << 16]))
def test_every_group_has_the_state_of_its_chain(world: World, batch: int) -> None:
    numbered_groups = _number_groups(world.groups, list(world.edges.items()))
    intervals = _intervals(numbered_groups, world.rows, batch)
    assert _states(numbered_groups, intervals) == {
        group: resolve_state(world.edges, world.rows, group) for group in world.groups
    }
    node_rows = numbered_groups.nodes.to_pylist()
    assert len({(node["room_id"], node["position"]) for node in node_rows}) == len(node_rows)
    nodes = {(node["room_id"], node["state_group"]) for node in node_rows}
    rows = sum(len(world.rows.get(group, {})) for _, group in nodes)
    assert len(intervals) <= max(2 * rows - 1, 0)


@given(worlds(2, 30, 60))
def test_positions_do_not_depend_on_the_order_of_rows(world: World) -> None:
    forwards = _number_groups(world.groups, list(world.edges.items()))
    backwards = _number_groups(dict(reversed(world.groups.items())), list(reversed(world.edges.items())))
    assert forwards.nodes == backwards.nodes


def test_a_key_in_consecutive_full_states_is_one_interval() -> None:
    """Synapse stores a full state after 100 groups. The interval of an unchanged key continues."""
    state: State = {("m.room.create", ""): "$create", ("m.room.name", ""): "$name"}
    numbered_groups = _number_groups({1: "!room", 2: "!room", 3: "!room"}, [])
    intervals = _intervals(numbered_groups, {1: state, 2: state, 3: state | {("m.room.name", ""): "$other"}})
    assert [(row["event_id"], row["first_position"], row["last_position"]) for row in intervals] == [
        ("$create", 0, 2), ("$name", 0, 1), ("$other", 2, 2),
    ]  # fmt: skip


def test_invalid_groups_are_reported_and_affect_no_others() -> None:
    groups = {1: "!a", 2: "!a", 3: "!a", 10: "!b", 11: "!b", 12: "!b", 13: "!b", 20: "!c", 21: "!d"}
    edges = [(2, 1), (3, 2), (10, 11), (11, 10), (12, 11), (13, 9), (20, 21), (21, 3), (3, 1)]
    numbered_groups = _number_groups(groups, edges)
    faults = {
        (row["room_id"], row["state_group"], StateGroupFault(row["fault"]))
        for row in numbered_groups.faults.to_pylist()
    }
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
    states = _states(
        numbered_groups, _intervals(numbered_groups, {group: {("t", ""): f"${group}"} for group in (1, 2, 9, 13, 21)})
    )
    assert states == {
        1: {("t", ""): "$1"}, 2: {("t", ""): "$2"}, 3: {("t", ""): "$2"}, 13: {("t", ""): "$13"},
        20: {("t", ""): "$21"}, 21: {("t", ""): "$21"},
    }  # fmt: skip


def test_a_chain_of_hundreds_of_thousands_is_numbered() -> None:
    depth = 300_000
    ids = pa.array(range(1, depth + 1), pa.int64())
    numbered_groups = number_groups(
        pa.table({"id": ids, "room_id": pa.array(["!deep"] * depth)}),
        pa.table({"state_group": ids[1:], "prev_state_group": ids[:-1]}),
    )
    assert numbered_groups.faults.num_rows == 0
    assert numbered_groups.nodes["position"].to_pylist() == list(range(depth))
    assert set(numbered_groups.nodes["last_position"].to_pylist()) == {depth - 1}


def test_without_groups_there_are_no_intervals() -> None:
    numbered_groups = _number_groups({}, [])
    assert numbered_groups.nodes.num_rows == numbered_groups.faults.num_rows == 0
    assert list(flatten_intervals([])) == []
