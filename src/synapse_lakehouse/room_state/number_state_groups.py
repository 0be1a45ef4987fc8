"""Number the state groups of many rooms in Spark tasks. Each task numbers one bucket of rooms.

Rooms are independent of each other, except rooms with a common tree of state groups: these rooms share a bucket. Common
trees are faults and therefore rare, so a single task finds all of these rooms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.room_state.first_changes import find_first_changes
from synapse_lakehouse.room_state.group_tree import number_groups
from synapse_lakehouse.room_state.number_appended_groups import find_appended_groups, number_appended_groups
from synapse_lakehouse.room_state.room_components import find_components

GROUPS: Final = "bronze.state_groups"
EDGES: Final = "bronze.state_group_edges"
ROWS: Final = "bronze.state_groups_state"

_GROUPS_PER_TASK: Final = 250_000
"""A task takes about 400 bytes of memory for each group. A room with more groups is still one task."""

_POSITION_TYPES: Final = "room_id string, state_group bigint, root bigint, position bigint, last_position bigint"
_NODE_TYPES: Final = f"{_POSITION_TYPES}, is_group boolean"
_NUMBERED_TYPES: Final = f"{_NODE_TYPES}, fault string, is_first_change boolean"
_ENDS: Final = ("state_group", "prev_state_group")
_GROUP_COLUMNS: Final = {GROUPS: "id", EDGES: "state_group", ROWS: "state_group"}


@dataclass(frozen=True)
class NumberedRooms:
    """Numbered rooms. ``nodes`` and ``faults`` have the columns of :class:`group_tree.NumberedGroups`."""

    nodes: DataFrame
    faults: DataFrame


@dataclass(frozen=True)
class ChangedRooms(NumberedRooms):
    """Rooms with changes.

    * ``first_changes``: room_id, position, as :func:`first_changes.find_first_changes` returns them.
    * ``renumbered``: room_id of the rooms whose groups were all numbered. For a room that only gained groups at its
      end, ``nodes`` has only the new groups and the groups whose ranges contain new groups, and ``faults`` has no row.
    * ``predecessors``: room_id, state_group of the predecessors of appended groups.
    """

    first_changes: DataFrame
    renumbered: DataFrame
    predecessors: DataFrame


def number_all_rooms(spark: SparkSession) -> NumberedRooms:
    """Number the state groups of all rooms."""
    graph = _read_graph(spark)
    nothing = spark.createDataFrame([], _POSITION_TYPES)
    return _number(graph.groups, graph.edges, nothing, nothing.select("state_group"), spark.table(GROUPS).count())


def number_changed_rooms(
    spark: SparkSession, changes: Mapping[str, DataFrame], previous: DataFrame, max_share: float
) -> ChangedRooms | None:
    """Number the rooms with changed groups, edges or rows, and rooms that share trees with them.

    :param changes: by table (``GROUPS``, ``EDGES``, ``ROWS``), the rows that changed since the last release: the
        table's columns and ``_change_type`` (INSERT or DELETE).
    :param previous: ``silver.state_positions`` of the last release.
    :param max_share: if the rooms to renumber have more than this share of all groups, return None.
    """
    inserted = {name: changes[name].where("_change_type = 'INSERT'") for name in (GROUPS, EDGES)}
    appended = materialize(find_appended_groups(inserted[GROUPS], inserted[EDGES], previous))
    new = appended.where("position is null").select(f.col("state_group").alias("new_group"))
    others = {name: _leave_out(rows, _GROUP_COLUMNS[name], new) for name, rows in changes.items()}
    if all(rows.isEmpty() for rows in others.values()):
        return _number_appended(appended)
    numbered = _renumber(spark, others, previous, max_share)
    if numbered is None:
        return None
    rest = _number_appended(appended.join(numbered.renumbered, "room_id", "left_anti"))
    return ChangedRooms(
        numbered.nodes.unionByName(rest.nodes),
        numbered.faults,
        numbered.first_changes.unionByName(rest.first_changes),
        numbered.renumbered,
        rest.predecessors,
    )


def _leave_out(changes: DataFrame, column: str, new: DataFrame) -> DataFrame:
    """Return the changed rows that are not inserted rows of ``new`` groups."""
    is_inserted_row_of_new = (f.col(column) == f.col("new_group")) & (f.col("_change_type") == "INSERT")
    return changes.join(f.broadcast(new), is_inserted_row_of_new, "left_anti")


def _number_appended(appended: DataFrame) -> ChangedRooms:
    spark = appended.sparkSession
    tasks = f.lit(int(str(spark.conf.get("spark.sql.shuffle.partitions"))))
    buckets = appended.groupBy(f.pmod(f.hash("room_id"), tasks))
    nodes = materialize(buckets.applyInArrow(number_appended_groups, _NODE_TYPES))
    first_changes = appended.select("room_id", f.expr("room_end + 1 as position")).distinct()
    predecessors = appended.where("position is null").select("room_id", f.col("prev_state_group").alias("state_group"))
    no_faults = spark.createDataFrame([], "room_id string, state_group bigint, fault string")
    return ChangedRooms(nodes, no_faults, first_changes, no_faults.select("room_id"), predecessors)


def _renumber(
    spark: SparkSession, changes: Mapping[str, DataFrame], previous: DataFrame, max_share: float
) -> ChangedRooms | None:
    graph = _read_graph(spark)
    changed_rows = changes[ROWS].select("state_group").distinct()
    ids = [changes[GROUPS].select("id"), *(changes[EDGES].select(end) for end in _ENDS)]
    changed = reduce(DataFrame.unionAll, ids, changed_rows).toDF("state_group").distinct()
    by_edge = [graph.edges.select(f.col(end).alias("state_group"), "component") for end in _ENDS]
    components = reduce(DataFrame.unionAll, by_edge, graph.groups.select("state_group", "component"))
    # A deleted group may have been the last one of its room.
    deleted_from = _add_component(changes[GROUPS].select(_vertex(f.col("room_id")).alias("vertex")), graph.components)
    affected = components.join(changed, "state_group").select("component").unionAll(deleted_from.select("component"))
    affected = affected.distinct().persist(StorageLevel.DISK_ONLY)
    groups, edges = (frame.join(affected, "component", "left_semi") for frame in (graph.groups, graph.edges))
    groups = groups.persist(StorageLevel.DISK_ONLY)
    count = groups.count()
    if count > max_share * spark.table(GROUPS).count():
        return None
    before = _add_component(previous.withColumn("vertex", _vertex(f.col("room_id"))), graph.components)
    return _number(groups, edges, before.join(affected, "component", "left_semi"), changed_rows, count)


@dataclass(frozen=True)
class _RoomGraph:
    """Groups and edges, each with the component of its room: a number for the rooms that share trees.

    * ``groups``: state_group, room_id, component. ``edges``: state_group, prev_state_group, component.
    * ``components``: vertex, component; only vertices that are linked to another vertex. A vertex is the hash of
      a room, or of a deleted group of which an edge is left.
    """

    groups: DataFrame
    edges: DataFrame
    components: DataFrame


def _read_graph(spark: SparkSession) -> _RoomGraph:
    groups = spark.table(GROUPS).select(f.col("id").alias("state_group"), "room_id")
    edges = spark.table(EDGES).select("state_group", "prev_state_group")
    rooms = {
        end: groups.select(f.col("state_group").alias(end), f.col("room_id").alias(f"room of {end}")) for end in _ENDS
    }
    for end, of_groups in rooms.items():
        edges = edges.join(of_groups, end, "left")
    vertex, prev_vertex = (_vertex(f.col(f"`room of {end}`"), f.col(end)) for end in rooms)
    linked = edges.select("state_group", "prev_state_group", vertex.alias("vertex"), prev_vertex.alias("prev_vertex"))
    links = linked.where("vertex <> prev_vertex").select("vertex", "prev_vertex").distinct()
    components = links.repartition(1).mapInArrow(find_components, "vertex bigint, component bigint")
    components = components.persist(StorageLevel.DISK_ONLY)
    # After the count, Spark knows how few rows it joins.
    components.count()
    with_vertex = groups.withColumn("vertex", _vertex(f.col("room_id")))
    return _RoomGraph(
        _add_component(with_vertex, components).select("state_group", "room_id", "component"),
        _add_component(linked, components).select("state_group", "prev_state_group", "component"),
        components,
    )


def _vertex(room: Column, group: Column | None = None) -> Column:
    # If two rooms have the same hash, they share a bucket.
    name = f.xxhash64(f.lit("room"), room)
    return name if group is None else f.when(room.isNotNull(), name).otherwise(f.xxhash64(f.lit("group"), group))


def _add_component(rows: DataFrame, components: DataFrame) -> DataFrame:
    return rows.join(components, "vertex", "left").withColumn("component", f.coalesce("component", "vertex"))


def _number(groups: DataFrame, edges: DataFrame, previous: DataFrame, changed: DataFrame, count: int) -> ChangedRooms:
    buckets = max(count // _GROUPS_PER_TASK, groups.sparkSession.sparkContext.defaultParallelism)
    marked = groups.join(changed.withColumn("is_changed", f.lit(True)), "state_group", "left")
    rows = marked.unionByName(previous, allowMissingColumns=True)
    left, right = (
        frame.withColumn("bucket", f.pmod(f.hash("component"), f.lit(buckets))).drop("component", "vertex")
        for frame in (rows, edges)
    )
    numbered = left.groupBy("bucket").cogroup(right.groupBy("bucket")).applyInArrow(_number_bucket, _NUMBERED_TYPES)
    numbered = materialize(numbered)
    is_node = f.col("is_group").isNotNull()
    nodes = numbered.where(is_node).drop("fault", "is_first_change")
    first_changes = numbered.where("is_first_change").select("room_id", "position")
    # A room may have lost all its groups.
    rooms = nodes.select("room_id").unionAll(first_changes.select("room_id")).distinct()
    faults = numbered.where("fault is not null").select("room_id", "state_group", "fault")
    return ChangedRooms(nodes, faults, first_changes, rooms, nodes.select("room_id", "state_group").where("false"))


def _number_bucket(rows: pa.Table, edges: pa.Table) -> pa.Table:
    """Number the groups of a bucket, and find the first change of each room.

    :param rows: room_id, state_group, is_changed, root, position, last_position. Rows without a position are the groups
        to number (is_changed: true if rows of the group changed, otherwise NULL). Rows with a position are those of
        ``silver.state_positions`` of the last release.
    :param edges: state_group, prev_state_group.
    :return: the columns of ``_NUMBERED_TYPES``; each row is a node, a fault or a first change.
    """
    is_previous = pc.is_valid(rows["position"])
    groups, previous = rows.filter(pc.invert(is_previous)), rows.filter(is_previous)
    numbered = number_groups(groups.select(["state_group", "room_id"]).rename_columns(["id", "room_id"]), edges)
    changed = groups.filter(pc.is_valid(groups["is_changed"]))["state_group"]
    previous = previous.select(["room_id", "state_group", "root", "position", "last_position"])
    changes = find_first_changes(previous, numbered.nodes, changed.combine_chunks())
    changes = changes.append_column("is_first_change", pa.array([True] * changes.num_rows, pa.bool_()))
    tables = [numbered.nodes, numbered.faults, changes]
    return pa.concat_tables(tables, promote_options="default")


def materialize(rows: DataFrame) -> DataFrame:
    """Compute and store ``rows`` now. A cache does not suffice: Spark computes a cached frame again after a write to a
    table that the frame reads.
    """
    return rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
