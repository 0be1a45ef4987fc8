"""Number the trees of state groups, so that what a group hands down covers one range of numbers.

``state_group_edges`` say which group another one is stored as a difference to, so they form trees. Numbered in
pre-order, a group and all that rest on it have consecutive numbers: a row of ``state_groups_state`` holds for the range
of its group, except where a group inside that range overwrites it.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.numba_jit import Int32Array, Int64Array, cached_njit

NO_PREDECESSOR = -1
"""Stands for no predecessor."""


class StateGroupFault(StrEnum):
    """What is wrong with a room's state groups."""

    CYCLE = "cycle"
    """Groups that rest on each other in a circle: neither they nor what rests on them has a state."""
    MISSING_PREDECESSOR = "missing_predecessor"
    """A group rests on one that is gone: its state is what is left of it."""
    OTHER_ROOM = "other_room"
    """A group rests on one of another room."""
    SEVERAL_PREDECESSORS = "several_predecessors"
    """A group names several predecessors; the highest one counts here. Synapse merges what all of them come to, and on
    PostgreSQL lets the highest group win: where the others have more, the state is another one."""
    NEWER_PREDECESSOR = "newer_predecessor"
    """A group rests on a newer one, which Synapse reads as if the newer one overwrote it."""


@dataclass(frozen=True)
class NumberedGroups:
    """The numbered groups, and what is wrong with some of them.

    ``nodes``: room_id, state_group, root, position, last_position (of the group and all that rest on it), is_group
    (false: only its rows or edges are left). Positions begin at 0 in each room, are unique in it and follow the order
    of the roots' ids. A tree that spans several rooms is numbered in each of them.

    ``faults``: room_id, state_group, fault; one row for each group concerned.
    """

    nodes: pa.Table
    faults: pa.Table


def number_groups(groups: pa.Table, edges: pa.Table) -> NumberedGroups:
    """Number the state groups of all rooms.

    :param groups: id, room_id.
    :param edges: state_group, prev_state_group; what they name need not be in ``groups``.
    """
    names = pc.unique(groups["room_id"]).sort()
    known, first = np.unique(_longs(groups["id"]), return_index=True)
    room_of_known = pc.index_in(groups["room_id"], names).to_numpy().astype(np.int32)[first]
    below, above = _longs(edges["state_group"]), _longs(edges["prev_state_group"])
    ids = np.unique(np.concatenate([known, below, above]))
    room = np.full(len(ids), NO_PREDECESSOR, np.int32)
    room[np.searchsorted(ids, known)] = room_of_known

    prev = np.full(len(ids), NO_PREDECESSOR, np.int64)
    child, parent = np.searchsorted(ids, below), np.searchsorted(ids, above)
    np.maximum.at(prev, child, parent)
    several = np.flatnonzero(np.bincount(child, minlength=len(ids)) > 1)
    order, root = _from_the_roots(prev)
    size = _sizes(prev, order)

    rests = np.flatnonzero(prev != NO_PREDECESSOR)
    faults = {
        StateGroupFault.CYCLE: np.flatnonzero(root == NO_PREDECESSOR),
        StateGroupFault.MISSING_PREDECESSOR: rests[room[prev[rests]] == NO_PREDECESSOR],
        StateGroupFault.OTHER_ROOM: rests[(room[prev[rests]] != NO_PREDECESSOR) & (room[rests] != room[prev[rests]])],
        StateGroupFault.SEVERAL_PREDECESSORS: several,
        StateGroupFault.NEWER_PREDECESSOR: rests[prev[rests] > rests],
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
    return NumberedGroups(table, _told(faults, ids, room, names))


def _told(faults: dict[StateGroupFault, Int64Array], ids: Int64Array, room: Int32Array, names: pa.Array) -> pa.Table:
    of_rooms = {fault: found[room[found] != NO_PREDECESSOR] for fault, found in faults.items()}
    found = np.concatenate(list(of_rooms.values()))
    kinds = [fault.value for fault, some in of_rooms.items() for _ in range(len(some))]
    return pa.table(
        {"room_id": names.take(room[found]), "state_group": ids[found], "fault": pa.array(kinds, pa.string())}
    )


def _longs(column: pa.ChunkedArray) -> Int64Array:
    values: Int64Array = column.to_numpy().astype(np.int64, copy=False)
    return values


def _trees(room: Int32Array, root: Int64Array) -> tuple[Int32Array, Int64Array]:
    """Every room with every tree that has groups of it, ordered by room and root."""
    has = (room != NO_PREDECESSOR) & (root != NO_PREDECESSOR)
    pairs = np.unique(room[has].astype(np.int64) * len(root) + root[has])
    return (pairs // max(len(root), 1)).astype(np.int32), pairs % max(len(root), 1)


def _starts(tree_room: Int32Array, tree_size: Int64Array) -> Int64Array:
    """The first position of each tree: 0 for a room's first, after the one before for all others."""
    ends = np.cumsum(tree_size)
    begins = ends - tree_size
    is_first = np.append(True, tree_room[1:] != tree_room[:-1]) if len(tree_room) else np.zeros(0, bool)
    of_room = np.cumsum(is_first) - 1
    started: Int64Array = begins - begins[is_first][of_room]
    return started


@cached_njit
def _from_the_roots(prev: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The nodes so that each comes after its predecessor, in ascending order where ids are; and each node's root, -1
    for those in or on a circle, which are not in the order."""
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
        # Back at a node of this very path: a circle. Otherwise what was reached is decided, or the path ends in a root.
        found = path[depth - 1] if node == -1 and depth else (-1 if node == -1 or root[node] == -3 else root[node])
        for step in range(depth - 1, -1, -1):
            root[path[step]] = found
            if found != -1:
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
    """Each node of each tree of each room: the node, the tree's place in ``tree_root`` and its position."""
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
