"""Find trees of state groups that did not change, so that their intervals can be reused."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.numba_jit import BoolArray, Int64Array


@dataclass(frozen=True)
class ReusableState:
    """The reusable part of the previous positions.

    * ``runs``: ranges of positions of unchanged trees, with room_id, first_position and last_position (previous
      values), and shift (new minus previous position). Adjacent trees with the same shift are one range.
    * ``new_nodes``: the nodes of all other trees, with the columns of :class:`group_tree.NumberedGroups`.
    * ``unchanged_rooms``: room_id of the rooms without a change.
    """

    runs: pa.Table
    new_nodes: pa.Table
    unchanged_rooms: pa.Array


def find_reusable_state(before: pa.Table, nodes: pa.Table, changed: pa.Array) -> ReusableState:
    """Compare the previous numbering with the new numbering.

    A tree is unchanged if it has the same groups in the same order and no row of the groups changed. Then its intervals
    are the same, and all of its positions are shifted by the same number.

    :param before: the previous rows of ``silver.state_positions``.
    :param nodes: the new nodes of :class:`group_tree.NumberedGroups`.
    :param changed: IDs of groups whose rows in ``state_groups_state`` changed.
    """
    previous = before.select(["room_id", "state_group", "root", "position", "last_position"])
    joined = nodes.join(previous, ["room_id", "state_group"], right_suffix="_before")
    joined = joined.sort_by([("room_id", "ascending"), ("position", "ascending")])
    room = _room_codes(joined["room_id"])
    position, last = _int64(joined["position"]), _int64(joined["last_position"])
    root, root_before = _int64(joined["root"]), _int64(joined["root_before"])
    shift = position - _int64(joined["position_before"])
    begins = np.flatnonzero(_differs_from_previous(room) | _differs_from_previous(root))
    same = (
        (root == root_before)
        & (last - _int64(joined["last_position_before"]) == shift)
        & ~pc.is_in(joined["state_group"], value_set=changed).to_numpy(zero_copy_only=False)
    )
    if not len(begins):
        return ReusableState(_runs(joined, begins, position, last, shift), nodes, pa.array([], pa.string()))
    unchanged = np.logical_and.reduceat(same, begins)
    unchanged &= np.minimum.reduceat(shift, begins) == np.maximum.reduceat(shift, begins)
    is_unchanged = np.repeat(unchanged, np.diff(np.append(begins, len(room))))
    # Trees are adjacent, in the order of their roots. Trees with the same shift were adjacent before, too.
    starts = begins[unchanged]
    follows = np.zeros(len(starts), bool)
    follows[1:] = (room[starts[1:]] == room[starts[:-1]]) & (shift[starts[1:]] == shift[starts[:-1]])
    follows[1:] &= np.diff(np.flatnonzero(unchanged)) == 1
    first = np.flatnonzero(~follows)
    lasts = starts[np.append(first[1:], len(starts)) - 1] if len(first) else starts
    runs = _runs(joined, starts[first], position, last[lasts], shift)
    return ReusableState(
        runs, joined.filter(pa.array(~is_unchanged)).select(nodes.column_names), _unchanged_rooms(before, nodes, runs)
    )


def _runs(joined: pa.Table, starts: Int64Array, position: Int64Array, last: Int64Array, shift: Int64Array) -> pa.Table:
    return pa.table(
        {
            "room_id": joined["room_id"].take(pa.array(starts)),
            "first_position": position[starts] - shift[starts],
            "last_position": last[: len(starts)] - shift[starts],
            "shift": shift[starts],
        }
    )


def _unchanged_rooms(before: pa.Table, nodes: pa.Table, runs: pa.Table) -> pa.Array:
    """Rooms with one row in ``runs`` that covers all of their previous and all of their new positions."""
    ends = [table.group_by("room_id").aggregate([("last_position", "max")]) for table in (before, nodes)]
    complete = runs.filter((pc.field("first_position") == 0) & (pc.field("shift") == 0))
    for end in ends:
        complete = complete.join(end, "room_id", join_type="inner")
        complete = complete.filter(pc.field("last_position") == pc.field("last_position_max")).drop_columns(
            "last_position_max"
        )
    return complete["room_id"].combine_chunks()


def _room_codes(column: pa.ChunkedArray) -> Int64Array:
    return _int64(column.combine_chunks().dictionary_encode().indices)


def _int64(column: pa.ChunkedArray | pa.Array) -> Int64Array:
    values: Int64Array = pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _differs_from_previous(values: Int64Array) -> BoolArray:
    differs: BoolArray = np.ones(len(values), bool)
    differs[1:] = values[1:] != values[:-1]
    return differs
