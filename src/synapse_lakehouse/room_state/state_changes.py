"""Find state groups whose state differs from that in an earlier release: ``silver.state_changes``.

Synapse never changes the state of a group. A compression changes the rows and predecessors of groups, but not their
digests. A deleted group has no position, so it is not compared, unless an event needs it. After a restore of the
database, Synapse uses the numbers of groups again. A group whose number was used again is not compared: the group was
created for another event, or its event has another group now.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.room_state import number_state_groups
from synapse_lakehouse.room_state.number_state_groups import materialize

POSITIONS: Final = "silver.state_positions"
INTERVALS: Final = "silver.state_intervals"
USES: Final = "bronze.event_to_state_groups"
COMPARED_TABLES: Final = (POSITIONS, number_state_groups.EDGES, number_state_groups.ROWS)

_PIECE: Final = ("state_group", "type", "state_key")
_IS_SAME_GROUP: Final = "created_for <=> created_for_now"


def find_state_changes(
    spark: SparkSession, changes: Mapping[str, DataFrame], before: Mapping[str, DataFrame], unresolved: DataFrame
) -> DataFrame:
    """Return new rows of ``silver.state_changes``, and the rows of the last release whose change is not repaired.

    A row is repaired when its group has the state before the change again. Groups with rows in the last release are
    compared again: if a loss continues, the pieces of state that changed since the last release get rows.

    :param spark: the session, which reads the tables of the run's branch.
    :param changes: for each of ``COMPARED_TABLES``, the rows that changed since the last release: the table's columns
        and ``_change_type``, as :func:`changed_rows.read_changed_rows` returns them.
    :param before: ``silver.state_intervals``, ``bronze.state_groups`` and ``bronze.event_to_state_groups`` of the last
        release, by name.
    :param unresolved: ``silver.state_changes`` of the last release.
    """
    created = spark.table(number_state_groups.GROUPS).selectExpr("id as state_group", "event_id as created_for_now")
    created_before = before[number_state_groups.GROUPS].selectExpr("id as state_group", "event_id as created_for")
    now = spark.table(POSITIONS).selectExpr("state_group", "digest as digest_now")
    still = unresolved.join(now, "state_group").where("digest <> digest_now").join(created, "state_group")
    still = still.where(_IS_SAME_GROUP).select(unresolved.columns)
    changed = materialize(_find_changed_groups(changes[POSITIONS]))
    lost = changed.where("digest_now is null").join(created_before, "state_group")
    lost = unresolved.join(now, "state_group", "left_anti").unionByName(
        _describe_lost_groups(lost).join(unresolved, "state_group", "left_anti"), allowMissingColumns=True
    )
    needed = spark.table(USES).select("state_group")
    still = materialize(still.unionByName(lost.join(needed, "state_group", "left_semi")))
    changed = changed.where("digest_now is not null")
    if changed.isEmpty():
        return still
    changed = changed.join(created, "state_group").join(created_before, "state_group").where(_IS_SAME_GROUP)
    edges = (
        spark.table(number_state_groups.EDGES)
        .groupBy("state_group")
        .agg(f.max("prev_state_group").alias("predecessor"))
    )
    changed = materialize(changed.join(edges, "state_group", "left"))
    pieces = _find_changed_pieces(spark, changes[number_state_groups.ROWS], before[INTERVALS], changed)
    found = _name_causes(changed, pieces, _diff(changes[number_state_groups.EDGES], "state_group"))
    found = found.join(_find_reused_numbers(changed, before[USES], spark.table(USES)), "state_group", "left_anti")
    found = materialize(_omit_reported(found, unresolved, still))
    found = _undo_earlier_changes(found, _find_inherited_changes(spark, found, still, before[INTERVALS]))
    return still.unionByName(found.select(still.columns))


def _find_changed_groups(positions: DataFrame) -> DataFrame:
    """Return the groups that have another digest than in the last release, or no digest any more.

    :param positions: changed rows of ``silver.state_positions``, with ``_change_type``.
    :return: state_group; room_before, position and digest of the last release; room_id, position_now,
        last_position_now and digest_now (NULL for a group without a position).
    """
    new, old = (positions.where(f"_change_type = '{change}'") for change in ("INSERT", "DELETE"))
    new = new.selectExpr(
        "state_group",
        "room_id",
        "position as position_now",
        "last_position as last_position_now",
        "digest as digest_now",
    )
    old = old.selectExpr("state_group", "room_id as room_before", "position", "digest")
    return old.join(new, "state_group", "left").where("not digest <=> digest_now")


def _describe_lost_groups(lost: DataFrame) -> DataFrame:
    """Return rows of ``silver.state_changes`` for groups that have no position any more."""
    return lost.selectExpr(
        "room_before as room_id", "state_group", "state_group as cause", "digest", "created_for",
        "unix_millis(current_timestamp()) as found_at",
    )  # fmt: skip


def _find_reused_numbers(changed: DataFrame, uses_before: DataFrame, uses_now: DataFrame) -> DataFrame:
    """Return ``state_group`` of the groups of ``changed`` whose event has another group now.

    Synapse stores the states before and after an event as groups for this event. If Synapse stores the event again
    after a restore, the number that belonged to one of these groups may belong to the other one.
    """
    groups = changed.selectExpr("state_group as number", "created_for as event_id")
    groups = groups.join(uses_before.withColumnRenamed("state_group", "used_before"), "event_id")
    moved = groups.join(uses_now.withColumnRenamed("state_group", "used_now"), "event_id")
    return moved.where("used_before <> used_now").selectExpr("number as state_group").distinct()


def _diff(rows: DataFrame, *columns: str) -> DataFrame:
    """Return distinct ``columns`` of the deleted and inserted rows, without rows that only moved to new files."""
    change = f.sum(f.expr("if(_change_type = 'INSERT', 1, -1)")).alias("change")
    kept = [name for name in rows.columns if name != "_change_type"]
    return rows.groupBy(kept).agg(change).where("change <> 0").select(*columns).distinct()


def _find_changed_pieces(
    spark: SparkSession, rows: DataFrame, intervals_before: DataFrame, changed: DataFrame
) -> DataFrame:
    """Return the pieces of state whose change is in a group's own rows: _PIECE, event_before, event_after.

    A piece that changed in the same way in the predecessor is left out: a compression may have rewritten the rows.

    :param rows: changed rows of ``state_groups_state``, with ``_change_type``.
    :param intervals_before: ``silver.state_intervals`` of the last release.
    :param changed: rows of :func:`_find_changed_groups`, with ``predecessor``.
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
        looked_up = materialize(_add_event(looked_up, intervals, room, position, name))
    looked_up = looked_up.where("not event_before <=> event_after").select(*_PIECE, "event_before", "event_after")
    own = own.join(looked_up, [*_PIECE])
    inherited = (
        "own.predecessor = above.state_group and own.type = above.type and own.state_key = above.state_key"
        " and own.event_before <=> above.event_before and own.event_after <=> above.event_after"
    )
    own = own.alias("own").join(looked_up.alias("above"), f.expr(inherited), "left_anti").drop("predecessor")
    return materialize(own)


def _add_event(pieces: DataFrame, intervals: DataFrame, room: str, position: str, name: str) -> DataFrame:
    """Return ``pieces`` with a column ``name``: the event that is valid at the position in the room, or NULL.

    :param pieces: distinct _PIECE, and the columns ``room`` and ``position``.
    """
    valid = intervals.selectExpr(
        f"room_id as {room}", "type", "state_key", "first_position", "last_position", f"event_id as {name}"
    )
    with_event = pieces.join(valid, [room, "type", "state_key"])
    with_event = with_event.where(f"{position} between first_position and last_position").select(*_PIECE, name)
    return pieces.join(with_event, [*_PIECE], "left")


def _name_causes(changed: DataFrame, pieces: DataFrame, moved: DataFrame) -> DataFrame:
    """Return a row for each changed piece of state of a cause, and a row for each changed group without such pieces.

    A group is a cause if its own rows or edge changed, or if its predecessor in the room did not change. The cause of
    any other group is the nearest cause among its ancestors: the cause with the innermost range that contains the
    group. Ranges of the same level do not overlap.

    :param changed: rows of :func:`_find_changed_groups`, with ``predecessor``.
    :param pieces: rows of :func:`_find_changed_pieces`.
    :param moved: state_group of the groups whose edge changed.
    """
    with_own_rows = pieces.select("state_group").distinct().withColumn("has_rows", f.lit(True))
    is_cause = "has_rows is not null or is_moved is not null or depends is null"
    groups = (
        changed.join(with_own_rows, "state_group", "left")
        .join(moved.withColumn("is_moved", f.lit(True)), "state_group", "left")
        .join(
            changed.selectExpr("state_group as predecessor", "room_id", "true as depends"),
            ["predecessor", "room_id"],
            "left",
        )
        .withColumn("begun", f.expr(f"if({is_cause}, 1, 0)"))
    )
    groups = materialize(groups)
    ended = groups.where("begun = 1").selectExpr("room_id", "last_position_now + 1 as position_now", "-1 as begun")
    level = "sum(begun) over (partition by room_id order by position_now)"
    last_cause = "last(if(begun = 1, state_group, null), true) over (partition by room_id, level order by position_now)"
    return (
        groups.unionByName(ended, allowMissingColumns=True)
        .withColumn("level", f.expr(level))
        .where("state_group is not null")
        .withColumn("cause", f.expr(last_cause))
        .join(pieces, "state_group", "left")
        .withColumn("found_at", f.unix_millis(f.current_timestamp()))
    )


def _omit_reported(found: DataFrame, unresolved: DataFrame, still: DataFrame) -> DataFrame:
    """Return the rows of ``found`` that are new, with ``earliest_digest``: the digest in the group's reported rows.

    A row is reported if the last release has it. A group with reported rows gets new rows only for changes of its own.
    A repaired group gets no new row, and a row whose cause was repaired is not new. If the cause of a group has no new
    row, the group's row gets the time of the cause's last reported change.

    :param found: rows of :func:`_name_causes`.
    :param unresolved: ``silver.state_changes`` of the last release.
    :param still: the rows of ``silver.state_changes`` whose change is not repaired.
    """
    digests = unresolved.select("state_group", f.col("digest").alias("earliest_digest")).distinct()
    repaired = digests.join(still, "state_group", "left_anti").select("state_group")
    found = found.join(repaired, "state_group", "left_anti")
    found = found.join(repaired.withColumnRenamed("state_group", "cause"), "cause", "left_anti")
    is_same_piece = " and ".join(f"found.{column} <=> still.{column}" for column in _PIECE)
    reported = still.groupBy("cause").agg(f.max("found_at").alias("reported_at"))
    found_with_cause = "max(if(cause = state_group, found_at, null)) over (partition by cause)"
    return (
        found.alias("found")
        .join(still.alias("still"), f.expr(is_same_piece), "left_anti")
        .join(digests, "state_group", "left")
        .where("earliest_digest is null or cause = state_group and (type is not null or is_moved)")
        .join(reported, "cause", "left")
        .withColumn("found_at", f.expr(f"coalesce({found_with_cause}, reported_at, found_at)"))
    )


def _find_inherited_changes(
    spark: SparkSession, found: DataFrame, still: DataFrame, intervals_before: DataFrame
) -> DataFrame:
    """Return reported changes that groups without reported rows inherit: _PIECE, event_before, event_after.

    Synapse stored such a group as a difference to a damaged group, so its digest in the last release is the digest of a
    damaged state.
    """
    damaged = (
        still.where("cause = state_group and type is not null")
        .drop("room_id", "digest")
        .join(spark.table(POSITIONS).select("state_group", "room_id", "position", "last_position"), "state_group")
    )
    created = found.where("earliest_digest is null").selectExpr(
        "state_group", "room_id", "position_now", "room_before", "position as position_before"
    )
    inherited = created.distinct().join(damaged.drop("state_group", "cause"), "room_id")
    inherited = inherited.where("position_now > position and position_now <= last_position")
    # The change of the nearest ancestor applies.
    innermost = "max_by(struct(event_before, event_after), position) as change"
    inherited = inherited.groupBy(*_PIECE, "room_before", "position_before").agg(f.expr(innermost))
    inherited = _add_event(materialize(inherited), intervals_before, "room_before", "position_before", "event_id")
    return inherited.where("event_id <=> change.event_after").select(*_PIECE, "change.*")


def _undo_earlier_changes(found: DataFrame, inherited: DataFrame) -> DataFrame:
    """Return ``found`` with each group's digest before all changes, without groups that have this digest again now."""
    hashes = (
        f"if({event} is null, 0L, xxhash64(type, state_key, {event}))" for event in ("event_before", "event_after")
    )
    changes = inherited.groupBy("state_group").agg(f.expr(f"bit_xor({' ^ '.join(hashes)})").alias("changes"))
    digest = "coalesce(earliest_digest, digest ^ coalesce(changes, 0L))"
    found = found.join(changes, "state_group", "left").withColumn("digest", f.expr(digest))
    return found.where("digest <> digest_now")
