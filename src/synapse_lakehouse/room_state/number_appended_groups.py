"""Number new state groups at the ends of their rooms, without the rooms' other groups.

Synapse appends nearly all groups to the last branch of a room's last tree. In pre-order, such groups follow all others
of the room. Only the groups whose ranges reach the end of the room are needed to number them: the *end path*, from the
root of the last tree to the group with the last position.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from synapse_lakehouse.room_state.group_tree import number_groups

_COLUMNS: Final = ("room_id", "state_group", "prev_state_group", "position", "room_end")


def find_appended_groups(groups: DataFrame, edges: DataFrame, previous: DataFrame) -> DataFrame:
    """Return the new groups of rooms to which groups were only appended, and the groups on these rooms' end paths.

    A room is left out if a new group may belong before other groups, or if a tree of the room also has deleted groups
    or groups of other rooms.

    :param groups: rows of ``state_groups`` that were inserted since the last release: id, room_id.
    :param edges: rows of ``state_group_edges`` that were inserted since the last release: state_group,
        prev_state_group.
    :param previous: ``silver.state_positions`` of the last release.
    :return: room_id, state_group, prev_state_group, position (null for a new group), room_end (the room's last
        position in the last release; -1 for a new room).
    """
    predecessors = f.max("prev_state_group").alias("prev_state_group"), f.count("*").alias("predecessors")
    new = groups.select(f.col("id").alias("state_group"), "room_id").distinct()
    new = new.join(edges.groupBy("state_group").agg(*predecessors), "state_group", "left")
    sizes = f.count("*").alias("groups"), f.max("last_position").alias("room_end"), f.max("state_group").alias("newest")
    in_rooms = previous.join(new.select("room_id").distinct(), "room_id", "left_semi")
    rooms = in_rooms.groupBy("room_id").agg(*sizes)
    path = previous.join(rooms, "room_id").where("last_position = room_end")
    prev_on_path = f.lag("state_group").over(Window.partitionBy("room_id").orderBy("position"))
    path = path.withColumn("prev_state_group", prev_on_path)
    parents = path.select("state_group", "room_id").unionAll(new.select("state_group", "room_id"))
    parents = parents.toDF("prev_state_group", "parent_room")
    new = new.join(rooms, "room_id", "left").join(parents, "prev_state_group", "left")
    # Positions are dense, except in rooms whose trees also have groups of other rooms, or deleted groups.
    elsewhere = new.where(
        "predecessors > 1 or groups <> room_end + 1 or state_group <= newest or prev_state_group >= state_group"
        " or prev_state_group is not null and parent_room is distinct from room_id"
    )
    new = new.withColumns({"position": f.lit(None).cast("bigint"), "room_end": f.coalesce("room_end", f.lit(-1))})
    appended = new.select(*_COLUMNS).unionAll(path.select(*_COLUMNS))
    appended_rooms = new.select("room_id").distinct().join(elsewhere, "room_id", "left_anti")
    return appended.join(appended_rooms, "room_id", "left_semi")


def number_appended_groups(rows: pa.Table) -> pa.Table:
    """Return the nodes of :class:`group_tree.NumberedGroups` for rows of :func:`find_appended_groups`."""
    deltas = rows.filter(pc.is_valid(rows["prev_state_group"]))
    groups = rows.select(["state_group", "room_id"]).rename_columns(["id", "room_id"])
    nodes = number_groups(groups, deltas.select(["state_group", "prev_state_group"])).nodes
    rows = rows.append_column("is_path", pc.cast(pc.is_valid(rows["position"]), pa.int64()))
    rooms = rows.group_by("room_id").aggregate([("is_path", "sum"), ("room_end", "max")])
    before = rows.select(["room_id", "state_group", "position"])
    nodes = nodes.join(rooms, "room_id").join(before, ["room_id", "state_group"], right_suffix="_before")
    # The nodes of the end path come first, and the last of them was at the end of the room.
    shift = pc.add(pc.subtract(nodes["room_end_max"], nodes["is_path_sum"]), 1)
    position = pc.coalesce(nodes["position_before"], pc.add(nodes["position"], shift))
    last_position = pc.add(nodes["last_position"], shift)
    nodes = nodes.select(["room_id", "state_group", "root"])
    nodes = nodes.append_column("position", position).append_column("last_position", last_position)
    return nodes.append_column("is_group", pa.array([True] * nodes.num_rows, pa.bool_()))
