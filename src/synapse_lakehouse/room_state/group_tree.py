"""Number the trees of state groups in pre-order, so that a group and its descendants cover one range of numbers.

``state_group_edges`` contains the predecessor of each group that is stored as a delta, so the groups form trees. In
pre-order, a group and its descendants have consecutive numbers. A row of ``state_groups_state`` applies to the range of
its group, except where a descendant overwrites it.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.numba_jit import Int32Array, Int64Array, cached_njit

NO_PREDECESSOR = -1
"""Number that represents a missing predecessor or room."""


class StateGroupFault(StrEnum):
    """A fault in a room's state groups."""

    CYCLE = "cycle"
    """The predecessors of the groups form a cycle, so the groups and their descendants have no state."""
    MISSING_PREDECESSOR = "missing_predecessor"
    """The predecessor no longer exists, so the group's state is incomplete."""
    OTHER_ROOM = "other_room"
    """The predecessor belongs to another room."""
    SEVERAL_PREDECESSORS = "several_predecessors"
    """A group has several predecessors. Only the highest predecessor is used.

    Synapse merges the states of all predecessors, and on PostgreSQL the highest group wins. If another predecessor has
    pieces of state that the highest one lacks, Synapse uses them, but the state in the lake lacks them."""
    NEWER_PREDECESSOR = "newer_predecessor"
    """The predecessor is newer than the group. Then Synapse overwrites the group's state by the predecessor's state."""


@dataclass(frozen=True)
class NumberedGroups:
    """The numbered groups and their faults.

    ``nodes``: room_id, state_group, root, position, last_position (of the group's last descendant), is_group (false if
    the group belongs to another room, or only an edge of the group is stored). Positions are unique in a room, begin at
    0, and follow the order of the roots' IDs. A tree that spans several rooms is numbered in each room.

    ``faults``: room_id, state_group, fault. A group has one row for each of its faults.
    """

    nodes: pa.Table
    faults: pa.Table


def number_groups(groups: pa.Table, edges: pa.Table) -> NumberedGroups:
    """Number the state groups of all rooms.

    :param groups: id, room_id: the groups to number.
    :param edges: state_group, prev_state_group (a predecessor of the group). Edges may refer to groups that ``groups``
        lacks.
    """
    names = pc.unique(groups["room_id"]).sort()
    group_ids, first = np.unique(_int64(groups["id"]), return_index=True)
    group_rooms = pc.index_in(groups["room_id"], names).to_numpy().astype(np.int32)[first]
    children, parents = _int64(edges["state_group"]), _int64(edges["prev_state_group"])
    ids = np.unique(np.concatenate([group_ids, children, parents]))
    room = np.full(len(ids), NO_PREDECESSOR, np.int32)
    room[np.searchsorted(ids, group_ids)] = group_rooms

    prev = np.full(len(ids), NO_PREDECESSOR, np.int64)
    child, parent = np.searchsorted(ids, children), np.searchsorted(ids, parents)
    np.maximum.at(prev, child, parent)
    several = np.flatnonzero(np.bincount(child, minlength=len(ids)) > 1)
    order, root = _order_from_roots(prev)
    size = _sizes(prev, order)

    deltas = np.flatnonzero(prev != NO_PREDECESSOR)
    faults = {
        StateGroupFault.CYCLE: np.flatnonzero(root == NO_PREDECESSOR),
        StateGroupFault.MISSING_PREDECESSOR: deltas[room[prev[deltas]] == NO_PREDECESSOR],
        StateGroupFault.OTHER_ROOM: deltas[
            (room[prev[deltas]] != NO_PREDECESSOR) & (room[deltas] != room[prev[deltas]])
        ],
        StateGroupFault.SEVERAL_PREDECESSORS: several,
        StateGroupFault.NEWER_PREDECESSOR: deltas[prev[deltas] > deltas],
    }
    tree_room, tree_root = _trees(room, root)
    start = _starts(tree_room, size[tree_root])
    node, tree, offset = _preorder(prev, order, root, size, tree_root, start)
    table = pa.table(
        {
            "room_id": names.take(tree_room[tree]),
            "state_group": ids[node],
            "root": ids[root[node]],
            "position": offset,
            "last_position": offset + size[node] - 1,
            "is_group": room[node] == tree_room[tree],
        }
    )
    return NumberedGroups(table, _faults_table(faults, ids, room, names))


def _faults_table(
    faults: dict[StateGroupFault, Int64Array], ids: Int64Array, room: Int32Array, names: pa.Array
) -> pa.Table:
    in_rooms = {fault: nodes[room[nodes] != NO_PREDECESSOR] for fault, nodes in faults.items()}
    nodes = np.concatenate(list(in_rooms.values()))
    kinds = [fault.value for fault, faulty in in_rooms.items() for _ in range(len(faulty))]
    return pa.table(
        {"room_id": names.take(room[nodes]), "state_group": ids[nodes], "fault": pa.array(kinds, pa.string())}
    )


def _int64(column: pa.ChunkedArray) -> Int64Array:
    values: Int64Array = column.to_numpy().astype(np.int64, copy=False)
    return values


def _trees(room: Int32Array, root: Int64Array) -> tuple[Int32Array, Int64Array]:
    """Return room and root for each tree and each room with groups in the tree, ordered by room and root."""
    has = (room != NO_PREDECESSOR) & (root != NO_PREDECESSOR)
    pairs = np.unique(room[has].astype(np.int64) * len(root) + root[has])
    return (pairs // max(len(root), 1)).astype(np.int32), pairs % max(len(root), 1)


def _starts(tree_room: Int32Array, tree_size: Int64Array) -> Int64Array:
    """The first position of each tree: 0 for a room's first tree, otherwise the position after the previous tree."""
    ends = np.cumsum(tree_size)
    begins = ends - tree_size
    is_first = np.append(True, tree_room[1:] != tree_room[:-1]) if len(tree_room) else np.zeros(0, bool)
    of_room = np.cumsum(is_first) - 1
    starts: Int64Array = begins - begins[is_first][of_room]
    return starts


@cached_njit
def _order_from_roots(prev: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The nodes, each after its predecessor and otherwise in ascending order, and the root of each node.

    Nodes in a cycle, and their descendants, are not in the order. Their root is -1.
    """
    n = len(prev)
    root = np.full(n, -2, np.int64)
    order = np.empty(n, np.int64)
    path = np.empty(n, np.int64)
    count = 0
    for start in range(n):
        depth, node = 0, start
        while node != -1 and root[node] == -2:
            root[node] = -3
            path[depth] = node
            depth += 1
            node = prev[node]
        # A path that ends in one of its own nodes (-3) is a cycle. All other visited nodes have a root.
        top = path[depth - 1] if node == -1 and depth else (-1 if node == -1 or root[node] == -3 else root[node])
        for step in range(depth - 1, -1, -1):
            root[path[step]] = top
            if top != -1:
                order[count] = path[step]
                count += 1
    return order[:count], root


@cached_njit
def _sizes(prev: Int64Array, order: Int64Array) -> Int64Array:
    size = np.ones(len(prev), np.int64)
    for place in range(len(order) - 1, -1, -1):
        node = order[place]
        if prev[node] != -1:
            size[prev[node]] += size[node]
    return size


@cached_njit
def _preorder(
    prev: Int64Array, order: Int64Array, root: Int64Array, size: Int64Array, tree_root: Int64Array, start: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """For each node in each room: the node, the index of its tree in ``tree_root``, and the position."""
    n = len(prev)
    within = np.zeros(n, np.int64)
    free = np.ones(n, np.int64)
    for place in range(len(order)):
        node = order[place]
        above = prev[node]
        if above != -1:
            within[node] = within[above] + free[above]
            free[above] += size[node]
    members = np.full(n, -1, np.int64)
    last = np.full(n, -1, np.int64)
    for place in range(len(order) - 1, -1, -1):
        node = order[place]
        members[node] = last[root[node]]
        last[root[node]] = node
    total = 0
    for tree in range(len(tree_root)):
        total += size[tree_root[tree]]
    nodes, trees, positions = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    count = 0
    for tree in range(len(tree_root)):
        node = last[tree_root[tree]]
        while node != -1:
            nodes[count], trees[count], positions[count] = node, tree, start[tree] + within[node]
            count += 1
            node = members[node]
    return nodes, trees, positions
