"""Resolve the state of all rooms: ``silver.state_positions``, ``state_intervals``, ``state_faults``, ``state_changes``.

If the state on main was built from the bronze tables on main, only the rooms that changed since then are resolved, each
from its first changed position on.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.iceberg.read.changed_rows import read_changed_rows, read_rows_at
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.commits import set_or_remove_branch
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.room_state import (
    first_changes,
    group_tree,
    number_appended_groups,
    number_state_groups,
    room_components,
    state_changes,
    state_digests,
    state_intervals,
)
from synapse_lakehouse.room_state.number_state_groups import (
    ChangedRooms,
    NumberedRooms,
    materialize,
    number_all_rooms,
    number_changed_rooms,
)

SOURCE_TABLES: Final = [number_state_groups.GROUPS, number_state_groups.EDGES, number_state_groups.ROWS]
MINIMUM_ROWS_TO_RESOLVE_IN_PART: Final = 1_000_000
"""With fewer rows of ``state_groups_state``, resolving all rooms takes about as long as resolving the changed rooms."""

MAX_RENUMBERED_SHARE: Final = 0.5
"""If the rooms to renumber have more than this share of all state groups, all rooms are resolved."""

_MAX_ROWS_TO_BROADCAST: Final = 200_000
"""About 20 MB in the driver and in each executor."""

_POSITIONS: Final = state_changes.POSITIONS
_INTERVALS: Final = state_changes.INTERVALS
_FAULTS: Final = "silver.state_faults"
_CHANGES: Final = "silver.state_changes"
_TABLES: Final = (_FAULTS, _INTERVALS, _POSITIONS, _CHANGES)
_CODE_HASH: Final = hashlib.sha256(
    b"".join(
        Path(str(module)).read_bytes()
        for module in (
            number_appended_groups.__file__, first_changes.__file__, group_tree.__file__, number_state_groups.__file__,
            room_components.__file__, state_changes.__file__, state_digests.__file__, state_intervals.__file__,
            __file__,
        )
    )
).hexdigest()  # fmt: skip


@dataclass(frozen=True)
class ResolvedRooms:
    """Counts of resolved state groups and of resolved rooms with faults.

    ``is_partial``: whether only the rooms that changed were resolved.
    """

    groups: int
    broken_rooms: int
    is_partial: bool


def is_up_to_date(catalog: Catalog, branch: str) -> bool:
    """Return whether the tables of resolved state on ``branch`` were built from the bronze tables on ``branch``."""
    # silver.state_changes is written last. If a run failed before this write, all tables are rebuilt.
    return input_fingerprint.read_fingerprint(catalog, _CHANGES, branch) == _fingerprint(catalog, branch)


def resolve_rooms(
    spark: SparkSession,
    catalog: Catalog,
    branch: str,
    minimum_rows: int = MINIMUM_ROWS_TO_RESOLVE_IN_PART,
    max_renumbered_share: float = MAX_RENUMBERED_SHARE,
) -> ResolvedRooms:
    """Resolve the state of the bronze tables on ``branch``. The session must read and write this branch.

    :param minimum_rows: if ``state_groups_state`` has fewer rows, all rooms are resolved.
    :param max_renumbered_share: if the rooms to renumber have more than this share of all state groups, all rooms are
        resolved.
    """
    fingerprint = _fingerprint(catalog, branch)
    rows = input_fingerprint.find_branch_snapshot(load_table_or_none(catalog, number_state_groups.ROWS), branch)
    has_enough_rows = int(input_fingerprint.get_snapshot_property(rows, "total-records") or 0) >= minimum_rows
    numbered: NumberedRooms | None = None
    if has_enough_rows and is_up_to_date(catalog, "main"):
        numbered = _resolve_changed_rooms(spark, catalog, branch, max_renumbered_share, fingerprint)
    is_partial = numbered is not None
    if numbered is None:
        numbered = number_all_rooms(spark)
        input_fingerprint.replace_table(spark, _FAULTS, branch, numbered.faults, fingerprint)
        ranges = numbered.nodes.withColumn("first_position", f.col("position"))
        intervals = _resolve_intervals(_join_ranges(spark.table(number_state_groups.ROWS), ranges))
        input_fingerprint.replace_table(spark, _INTERVALS, branch, intervals, fingerprint)
        positions = state_digests.add_digests(numbered.nodes.where("is_group"), spark.table(_INTERVALS))
        input_fingerprint.replace_table(spark, _POSITIONS, branch, positions, fingerprint)
    input_fingerprint.replace_table(spark, _CHANGES, branch, _find_changes(spark, catalog, branch), fingerprint)
    broken = numbered.faults.select("room_id").distinct().count()
    return ResolvedRooms(numbered.nodes.where("is_group").count(), broken, is_partial)


def _resolve_changed_rooms(
    spark: SparkSession, catalog: Catalog, branch: str, max_renumbered_share: float, fingerprint: str
) -> ChangedRooms | None:
    """Resolve the rooms that changed since main; None if all rooms have to be resolved."""
    for name in _TABLES:
        # An earlier try may have written to the branch.
        main = input_fingerprint.find_branch_snapshot_id(load_table_or_none(catalog, name), "main")
        set_or_remove_branch(spark, name, branch, main)
    changes = {name: _read_changes(spark, catalog, name, branch) for name in SOURCE_TABLES}
    numbered = number_changed_rooms(spark, changes, spark.table(_POSITIONS), max_renumbered_share)
    if numbered:
        _resolve_in_part(spark, numbered, fingerprint)
    return numbered


def _find_changes(spark: SparkSession, catalog: Catalog, branch: str) -> DataFrame:
    changes = {name: _read_changes(spark, catalog, name, branch) for name in state_changes.COMPARED_TABLES}
    before = {
        name: read_rows_at(
            spark, name, input_fingerprint.find_branch_snapshot_id(load_table_or_none(catalog, name), "main")
        )
        for name in (_CHANGES, _INTERVALS, number_state_groups.GROUPS, state_changes.USES)
    }
    return state_changes.find_state_changes(spark, changes, before, before[_CHANGES])


def _fingerprint(catalog: Catalog, branch: str) -> str:
    return input_fingerprint.compute_fingerprint(catalog, branch, SOURCE_TABLES, _CODE_HASH)


def _read_changes(spark: SparkSession, catalog: Catalog, name: str, branch: str) -> DataFrame:
    table = load_table_or_none(catalog, name)
    before, after = (input_fingerprint.find_branch_snapshot_id(table, of) for of in ("main", branch))
    return read_changed_rows(spark, name, before, after)


def _resolve_in_part(spark: SparkSession, numbered: ChangedRooms, fingerprint: str) -> None:
    """Replace the rows of changed rooms: all faults, and positions and intervals from the first change on."""
    changes = numbered.first_changes.withColumnRenamed("position", "first_change")
    _replace_rows(spark, _FAULTS, numbered.renumbered, "true", numbered.faults, fingerprint)
    # A range that ends just before the first change may continue after it.
    reaches_it = "last_position >= first_change - 1"
    shortened = (
        spark.table(_INTERVALS)
        .join(changes, "room_id")
        .where(f"{reaches_it} and first_position < first_change")
        .withColumns({"last_position": f.expr("first_change - 1"), "position": f.col("first_position")})
    )
    later = numbered.nodes.join(changes, "room_id").where("last_position >= first_change")
    renumbered = later.join(numbered.renumbered, "room_id", "left_semi")
    appended = later.join(numbered.renumbered, "room_id", "left_anti")
    rows = (
        shortened.drop("first_change")
        .unionByName(_read_later_rows(renumbered))
        .unionByName(_read_later_rows(appended.where("position >= first_change")))
        .unionByName(_inherit_state(appended.join(numbered.predecessors, ["room_id", "state_group"], "left_semi")))
    )
    intervals = _resolve_intervals(rows)
    _replace_rows(spark, _INTERVALS, changes, reaches_it, intervals, fingerprint)
    positions = numbered.nodes.where("is_group").join(changes, "room_id").where(reaches_it)
    reaching = spark.table(_INTERVALS).join(changes, "room_id").where(reaches_it).drop("first_change")
    # ``reaching`` has all intervals that contain a position from the first change on. The state of groups before the
    # first change is the same.
    digests = state_digests.add_digests(positions, reaching).where("position >= first_change")
    same = spark.table(_POSITIONS).select("room_id", "position", *state_digests.DIGEST_COLUMNS)
    same = positions.where("position < first_change").join(same, ["room_id", "position"])
    _replace_rows(spark, _POSITIONS, changes, reaches_it, digests.unionByName(same), fingerprint)


def _replace_rows(
    spark: SparkSession, name: str, rooms: DataFrame, outdated: str, rows: DataFrame, fingerprint: str
) -> None:
    """Delete the outdated rows of ``rooms``, and insert ``rows``.

    :param rooms: room_id, and the columns that ``outdated`` uses.
    :param outdated: SQL condition on rows of the table (``old``) and of ``rooms``.
    :param rows: rows with the columns of the table. They are computed before the deletion, from the same table.
    """
    rows = materialize(rows.select(spark.table(name).columns))
    rooms.createOrReplaceTempView("changed_rooms")
    # If the run fails here, the branch's last Iceberg snapshot has no fingerprint, so all rooms are resolved again.
    spark.sql(
        f"delete from {name} as old where exists ("  # noqa: S608
        f"select 1 from changed_rooms where changed_rooms.room_id = old.room_id and {outdated})"
    )
    input_fingerprint.append_rows(spark, name, rows, fingerprint)


def _read_later_rows(nodes: DataFrame) -> DataFrame:
    """Return the rows of ``state_groups_state`` of ``nodes``, with the groups' ranges from the first change on.

    :param nodes: columns of :class:`group_tree.NumberedGroups`, and first_change.
    """
    count, oldest = nodes.agg(f.count("*"), f.min("state_group")).collect()[0]
    ranges = _broadcast_if_small(nodes.withColumn("first_position", f.greatest("position", "first_change")), count)
    # Most changed groups are new, so this condition lets Iceberg skip most data files.
    is_recent = f.col("state_group") >= f.lit(oldest).cast("bigint")
    return _join_ranges(nodes.sparkSession.table(number_state_groups.ROWS).where(is_recent), ranges)


def _inherit_state(predecessors: DataFrame) -> DataFrame:
    """Return the state of appended groups' predecessors, with the ranges of the predecessors from the first change on.

    If several predecessors have the same event, only the outermost of them has a row, because its range contains the
    ranges of the others.

    :param predecessors: columns of :class:`group_tree.NumberedGroups`, and first_change.
    """
    spark, earlier = predecessors.sparkSession, predecessors.where("position < first_change")
    rooms = earlier.groupBy("room_id", "first_change").agg(
        f.sort_array(f.collect_list(f.struct("position", "last_position"))).alias("predecessors")
    )
    within = "filter(predecessors, p -> p.position between first_position and last_position)"
    intervals = spark.table(_INTERVALS).join(_broadcast_if_small(rooms, rooms.count()), "room_id")
    return (
        intervals.withColumn("outermost", f.expr(f"get({within}, 0)"))
        .where("outermost is not null")
        .select(
            *state_intervals.INTERVAL_KEY, "first_change", "outermost.last_position", "event_id", "outermost.position"
        )
        .withColumnRenamed("first_change", "first_position")
    )


def _broadcast_if_small(rows: DataFrame, count: int) -> DataFrame:
    """Mark ``rows`` for a broadcast if they are few. Without a broadcast, Spark sorts the table that it joins to them.

    :param count: number of rows.
    """
    return f.broadcast(rows) if count <= _MAX_ROWS_TO_BROADCAST else rows


def _join_ranges(rows: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return ``rows`` of ``state_groups_state`` with the ranges of their groups.

    :param ranges: room_id, state_group, first_position, last_position, position.
    """
    rows = rows.select("state_group", "type", "state_key", "event_id")
    return rows.join(ranges, "state_group").select(
        *state_intervals.INTERVAL_KEY, "first_position", "last_position", "event_id", "position"
    )


def _resolve_intervals(ranges: DataFrame) -> DataFrame:
    """Return the intervals of ``silver.state_intervals``. Of two ranges with the same start, the inner range is the
    range of the group with the higher position.

    :param ranges: columns of ``silver.state_intervals``, and position.
    """
    ordered = ranges.repartition(*state_intervals.INTERVAL_KEY).sortWithinPartitions(
        *state_intervals.INTERVAL_KEY, "first_position", "position", "event_id"
    )
    ordered = ordered.drop("position")
    return ordered.mapInArrow(state_intervals.flatten_intervals, ordered.schema)
