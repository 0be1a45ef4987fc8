"""Groups at the ends of their rooms are numbered as in a full numbering."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_lakehouse.room_state.group_tree import number_groups
from synapse_lakehouse.room_state.number_appended_groups import number_appended_groups
from tests.support.state_rooms import World, worlds

TYPES = {
    "room_id": pa.string(), "state_group": pa.int64(), "prev_state_group": pa.int64(),
    "position": pa.int64(), "room_end": pa.int64(),
}  # fmt: skip
Node = tuple[str, int, int, int, int]


def number_world(world: World) -> dict[tuple[str, int], Node]:
    groups, edges, _ = world.tables()
    nodes = number_groups(groups, edges).nodes.to_pylist()
    columns = ("room_id", "state_group", "root", "position", "last_position")
    return {(node["room_id"], node["state_group"]): tuple(node[name] for name in columns) for node in nodes}


@settings(max_examples=100)
@given(worlds(3, 20, 60), st.integers(1, 10), st.data())
def test_appended_groups_have_the_same_positions(world: World, new_groups: int, data: st.DataObject) -> None:
    """New groups follow a group of the end path, another new group, or none; a room may be new."""
    for group, prev in list(world.edges.items()):
        if prev not in world.groups or world.groups[prev] != world.groups[group]:
            del world.edges[group]
    nodes_before = number_world(world)
    ends = {room: max(node[4] for node in nodes_before.values() if node[0] == room) for room in world.groups.values()}
    paths = {
        room: sorted(
            (node for node in nodes_before.values() if node[0] == room and node[4] == end), key=lambda node: node[3]
        )
        for room, end in ends.items()
    }
    added_groups: dict[str, list[int]] = {}
    for _ in range(new_groups):
        room = data.draw(st.sampled_from([*ends, "!new"]))
        parents = [None, *(node[1] for node in paths.get(room, ())), *added_groups.get(room, ())]
        world.nodes |= dict.fromkeys(world.groups, 1)
        prev = data.draw(st.sampled_from(parents))
        group = world.add(room, world.states[prev] if prev else {}, prev)
        added_groups.setdefault(room, []).append(group)
    rows: list[tuple[str, int, int | None, int | None, int]] = [
        (room, group, world.edges.get(group), None, ends.get(room, -1))
        for room, groups in added_groups.items()
        for group in groups
    ]
    for room in added_groups.keys() & paths.keys():
        chain = [node[1] for node in paths[room]]
        rows += [
            (room, node[1], prev, node[3], ends[room])
            for node, prev in zip(paths[room], [None, *chain[:-1]], strict=True)
        ]
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(column, type_) for column, type_ in zip(columns, TYPES.values(), strict=True)], [*TYPES])
    nodes_after = number_world(world)
    for node in number_appended_groups(table).to_pylist():
        *values, is_group = node.values()
        assert is_group
        assert tuple(values) == nodes_after.pop((node["room_id"], node["state_group"]))
    # All other nodes keep their positions, and new groups are not among them.
    assert nodes_after.items() <= nodes_before.items()
