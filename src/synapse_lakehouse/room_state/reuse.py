"""Which trees of state groups are as they were, so that what was known of their state can be carried over."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.numba_jit import BoolArray, Int64Array


@dataclass(frozen=True)
class ReusableState:
    """What of the positions before stays.

    ``runs``: room_id, first_position, last_position (as they were before), shift (to be added); they cover the trees
    that are the same, neighbours in one. ``fresh``: the nodes of all other trees, as :class:`forest.Forest` has them.
    ``untouched``: room_id of the rooms in which nothing changed.
    """

    runs: pa.Table
    fresh: pa.Table
    untouched: pa.Array


def find_reusable_state(before: pa.Table, nodes: pa.Table, changed: pa.Array) -> ReusableState:
    """Compare two numberings.

    A tree is the same where it has the same groups in the same order, and no row of theirs changed: then the same
    holds in it, at positions that are all shifted by one number.

    :param before: rows of ``silver.state_positions``.
    :param nodes: as :class:`forest.Forest` has them.
    :param changed: ids of groups with other rows in ``state_groups_state`` than before.
    """
    was = before.select(["room_id", "state_group", "root", "position", "last_position"])
    joined = nodes.join(was, ["room_id", "state_group"], right_suffix="_before")
    joined = joined.sort_by([("room_id", "ascending"), ("position", "ascending")])
    room = _numbers(joined["room_id"])
    position, last = _longs(joined["position"]), _longs(joined["last_position"])
    root, root_before = _longs(joined["root"]), _longs(joined["root_before"])
    shift = position - _longs(joined["position_before"])
    begins = np.flatnonzero(_differs(room) | _differs(root))
    same = (
        (root == root_before)
        & (last - _longs(joined["last_position_before"]) == shift)
        & ~pc.is_in(joined["state_group"], value_set=changed).to_numpy(zero_copy_only=False)
    )
    if not len(begins):
        return ReusableState(_runs(joined, begins, position, last, shift), nodes, pa.array([], pa.string()))
    kept = np.logical_and.reduceat(same, begins)
    kept &= np.minimum.reduceat(shift, begins) == np.maximum.reduceat(shift, begins)
    of_node = np.repeat(kept, np.diff(np.append(begins, len(room))))
    # Trees lie side by side, in the order of their roots: those with one shift did before, too.
    starts = begins[kept]
    follows = np.zeros(len(starts), bool)
    follows[1:] = (room[starts[1:]] == room[starts[:-1]]) & (shift[starts[1:]] == shift[starts[:-1]])
    follows[1:] &= np.diff(np.flatnonzero(kept)) == 1
    first = np.flatnonzero(~follows)
    lasts = starts[np.append(first[1:], len(starts)) - 1] if len(first) else starts
    runs = _runs(joined, starts[first], position, last[lasts], shift)
    return ReusableState(
        runs, joined.filter(pa.array(~of_node)).select(nodes.column_names), _untouched(before, nodes, runs)
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


def _untouched(before: pa.Table, nodes: pa.Table, runs: pa.Table) -> pa.Array:
    """Rooms that had one run of all positions, and have it still."""
    ends = [one.group_by("room_id").aggregate([("last_position", "max")]) for one in (before, nodes)]
    alone = runs.filter((pc.field("first_position") == 0) & (pc.field("shift") == 0))
    for end in ends:
        alone = alone.join(end, "room_id", join_type="inner")
        alone = alone.filter(pc.field("last_position") == pc.field("last_position_max")).drop_columns(
            "last_position_max"
        )
    return alone["room_id"].combine_chunks()


def _numbers(column: pa.ChunkedArray) -> Int64Array:
    return _longs(column.combine_chunks().dictionary_encode().indices)


def _longs(column: pa.ChunkedArray | pa.Array) -> Int64Array:
    values: Int64Array = pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _differs(values: Int64Array) -> BoolArray:
    differs: BoolArray = np.ones(len(values), bool)
    differs[1:] = values[1:] != values[:-1]
    return differs
