"""Find the first position at which the state of each room changed. The intervals before this position stay valid."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.numba_jit import Int64Array

_NEVER: Final = np.iinfo(np.int64).max


def find_first_changes(previous: pa.Table, nodes: pa.Table, changed: pa.Array) -> pa.Table:
    """Return the rooms whose state changed: room_id, position. All lower positions have the same state as before.

    The state at a position depends on the group at this position and on the group's ancestors. The ancestors have lower
    positions, and each of them covers the range up to its last position.

    :param previous: rows of ``silver.state_positions`` of the last release: room_id, state_group, root, position,
        last_position.
    :param nodes: the newly numbered nodes of :class:`group_tree.NumberedGroups`.
    :param changed: IDs of the groups whose rows of ``state_groups_state`` changed.
    """
    own = nodes.filter(pc.field("is_group")).drop_columns("is_group")
    both = own.join(previous, ["room_id", "position"], join_type="full outer", right_suffix="_before")
    position = _int64(both["position"])
    last, last_before = _int64(both["last_position"]), _int64(both["last_position_before"])
    differs = pc.is_in(both["state_group"], value_set=changed).to_numpy(zero_copy_only=False)
    for name in ("state_group", "root"):
        differs = differs | (_int64(both[name]) != _int64(both[f"{name}_before"]))
    # If only the end of a group's range changed, the state is the same up to the end of the shorter range.
    first = np.where(last != last_before, np.minimum(last, last_before) + 1, _NEVER)
    first = np.where(differs, position, first)
    changes = pa.table({"room_id": both["room_id"], "position": first}).filter(pc.field("position") != _NEVER)
    incomplete = pa.concat_tables([_find_incomplete(previous), nodes.filter(~pc.field("is_group")).select(["room_id"])])
    padded = incomplete.append_column("position", pa.array(np.zeros(incomplete.num_rows, np.int64)))
    rooms = pa.concat_tables([changes, padded]).group_by("room_id").aggregate([("position", "min")])
    return rooms.rename_columns(["room_id", "position"])


def _find_incomplete(previous: pa.Table) -> pa.Table:
    """Return the rooms whose trees also had groups that ``previous`` lacks: deleted groups or groups of other rooms."""
    sizes = previous.group_by("room_id").aggregate([("position", "count"), ("last_position", "max")])
    return sizes.filter(pc.field("position_count") != pc.field("last_position_max") + 1).select(["room_id"])


def _int64(column: pa.ChunkedArray) -> Int64Array:
    values: Int64Array = pc.fill_null(column, -1).to_numpy().astype(np.int64, copy=False)
    return values
