"""Find state groups whose state differs from that in an earlier release: ``silver.state_changes``.

Synapse never changes the state of a group. A compression changes the rows and predecessors of groups, but not their
digests. A deleted group has no position, so it is not compared. After a restore of the database, Synapse uses the
numbers of groups again. Such a group was created for another event.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.room_state import number_rooms
from synapse_lakehouse.room_state.number_rooms import materialize

POSITIONS: Final = "silver.state_positions"
INTERVALS: Final = "silver.state_intervals"
COMPARED_TABLES: Final = (POSITIONS, number_rooms.EDGES, number_rooms.ROWS)

_PIECE: Final = ("state_group", "type", "state_key")
_IS_SAME_GROUP: Final = "created_for <=> created_for_now"


def find_state_changes(
    spark: SparkSession, changes: Mapping[str, DataFrame], before: Mapping[str, DataFrame], unresolved: DataFrame
) -> DataFrame:
    """Return the rows of ``silver.state_changes``: new ones, and earlier ones whose group still has another state.

    A group with earlier rows is compared with the last release too, so a loss that continues adds rows for pieces of
    state without an earlier row.

    :param changes: changed rows of ``COMPARED_TABLES`` since the last release, as of
        :func:`changed_rows.read_changed_rows`. The session reads the new tables.
    :param before: ``silver.state_intervals`` and ``bronze.state_groups`` of the last release.
    :param unresolved: ``silver.state_changes`` of the last release.
    """
    created = spark.table(number_rooms.GROUPS).selectExpr("id as state_group", "event_id as created_for_now")
    created_before = before[number_rooms.GROUPS].selectExpr("id as state_group", "event_id as created_for")
    now = spark.table(POSITIONS).selectExpr("state_group", "digest as digest_now")
    still = unresolved.join(now, "state_group").where("digest <> digest_now").join(created, "state_group")
    still = materialize(still.where(_IS_SAME_GROUP).select(unresolved.columns))
    changed = materialize(_find_changed_groups(changes[POSITIONS]))
    if changed.isEmpty():
        return still
    changed = changed.join(created, "state_group").join(created_before, "state_group").where(_IS_SAME_GROUP)
    edges = spark.table(number_rooms.EDGES).groupBy("state_group").agg(f.max("prev_state_group").alias("predecessor"))
    changed = materialize(changed.join(edges, "state_group", "left"))
    pieces = _find_changed_pieces(spark, changes[number_rooms.ROWS], before[INTERVALS], changed)
    found = _name_causes(changed, pieces, _diff(changes[number_rooms.EDGES], "state_group"))
    return still.unionByName(_omit_reported(found, unresolved, still))


def _find_changed_groups(positions: DataFrame) -> DataFrame:
    """Return the groups with another digest. ``position`` and ``digest`` are the earlier values."""
    new, old = (positions.where(f"_change_type = '{change}'") for change in ("INSERT", "DELETE"))
    new = new.selectExpr("state_group", "room_id", "position as position_now", "digest as digest_now")
    old = old.selectExpr("state_group", "room_id as room_before", "position", "digest")
    return new.join(old, "state_group").where("digest <> digest_now").drop("digest_now")


def _diff(rows: DataFrame, *columns: str) -> DataFrame:
    """Return distinct ``columns`` of rows that were deleted or inserted. A row that was only rewritten is neither."""
    change = f.sum(f.expr("if(_change_type = 'INSERT', 1, -1)")).alias("change")
    kept = [name for name in rows.columns if name != "_change_type"]
    return rows.groupBy(kept).agg(change).where("change <> 0").select(*columns).distinct()


def _find_changed_pieces(
    spark: SparkSession, rows: DataFrame, intervals_before: DataFrame, changed: DataFrame
) -> DataFrame:
    """Return the pieces of state that changed by a group's own rows: _PIECE, event_before, event_after.

    A piece that changed likewise in the predecessor is not one: a compression may have rewritten the rows.
    """
    own = _diff(rows.join(changed.select("state_group"), "state_group", "left_semi"), *_PIECE)
    own = materialize(own.join(changed.select("state_group", "predecessor"), "state_group"))
    above = own.selectExpr("predecessor as state_group", "type", "state_key").distinct()
    columns = ["state_group", "room_id", "position_now", "room_before", "position"]
    looked_up = materialize(own.select(*_PIECE).union(above).distinct().join(changed.select(columns), "state_group"))
    for name, intervals, room, position in (
        ("event_before", intervals_before, "room_before", "position"),
        ("event_after", spark.table(INTERVALS), "room_id", "position_now"),
    ):
        valid = intervals.selectExpr(
            f"room_id as {room}", "type", "state_key", "first_position", "last_position", f"event_id as {name}"
        )
        with_event = looked_up.join(valid, [room, "type", "state_key"])
        with_event = with_event.where(f"{position} between first_position and last_position").select(*_PIECE, name)
        looked_up = materialize(looked_up.join(with_event, [*_PIECE], "left"))
    looked_up = looked_up.where("not event_before <=> event_after").select(*_PIECE, "event_before", "event_after")
    own = own.join(looked_up, [*_PIECE])
    inherited = (
        "own.predecessor = above.state_group and own.type = above.type and own.state_key = above.state_key"
        " and own.event_before <=> above.event_before and own.event_after <=> above.event_after"
    )
    own = own.alias("own").join(looked_up.alias("above"), f.expr(inherited), "left_anti").drop("predecessor")
    return materialize(own)


def _name_causes(changed: DataFrame, pieces: DataFrame, moved: DataFrame) -> DataFrame:
    """Return a row for each changed piece of state of a cause, and one for each other changed group.

    A group is a cause if its own rows or edge changed, or if its predecessor did not change. In pre-order, the groups
    that depend on a cause follow it.

    :param moved: groups whose edge changed.
    """
    with_own_rows = pieces.select("state_group").distinct().withColumn("has_rows", f.lit(True))
    groups = (
        changed.join(with_own_rows, "state_group", "left")
        .join(moved.withColumn("is_moved", f.lit(True)), "state_group", "left")
        .join(changed.selectExpr("state_group as predecessor", "true as depends"), "predecessor", "left")
    )
    is_cause = "has_rows is not null or is_moved is not null or depends is null"
    last_cause = (
        f"last(if({is_cause}, state_group, null), true)"
        " over (partition by room_id order by position_now rows between unbounded preceding and current row)"
    )
    return (
        groups.withColumn("cause", f.expr(last_cause))
        .join(pieces, "state_group", "left")
        .select(
            "room_id", "state_group", "cause", "type", "state_key", "event_before", "event_after", "digest",
            "created_for", f.unix_millis(f.current_timestamp()).alias("found_at"), "is_moved",
        )
    )  # fmt: skip


def _omit_reported(found: DataFrame, unresolved: DataFrame, still: DataFrame) -> DataFrame:
    """Return the rows of ``found`` that are new. A group with earlier rows keeps its earliest digest.

    Such a group has new rows only for changes of its own. A repaired group has none, and its repair is no cause.
    """
    digests = unresolved.selectExpr("state_group", "digest as earliest_digest").distinct()
    repaired = digests.join(still, "state_group", "left_anti").select("state_group")
    found = found.join(repaired, "state_group", "left_anti")
    found = found.join(repaired.withColumnRenamed("state_group", "cause"), "cause", "left_anti")
    is_same_piece = " and ".join(f"found.{column} <=> still.{column}" for column in _PIECE)
    return (
        found.alias("found")
        .join(still.alias("still"), f.expr(is_same_piece), "left_anti")
        .join(digests, "state_group", "left")
        .where("earliest_digest is null or cause = state_group and (type is not null or is_moved)")
        .withColumn("digest", f.coalesce("earliest_digest", "digest"))
        .select(still.columns)
    )
