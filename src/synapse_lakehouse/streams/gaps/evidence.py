"""Ids that had a row and have none: who tells of the row, and what explains that it is gone.

Where Synapse deletes rows itself, it leaves signs: a room that is gone, the room's least depth that was raised, a task
that purged, an event that is back under another id, an account that was closed. A purge of history takes messages and
never state, as far as Synapse knows which is which, and all of them up to a depth, or all but those of its own users
(``synapse.storage.databases.main.purge_events``): so of the senders of one server none of a lower depth is left. Other
events below that depth become outliers, and those that the rest points at become the room's backward extremities;
nothing else does that to an event that was there. Retention purges without a task, and the least depth may fall again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Contiguity, Stream, Table, effective_contiguity
from synapse_lakehouse.streams.gaps.classify import Evidence, Explanation
from synapse_lakehouse.streams.stream_tables import StreamTables, distance_sql, has_id_sql, union_all

EVIDENCE_COLUMNS: Final = ("stream", "table_name", "id", "witness", "explanation")
EVENT_COLUMN: Final = "event_id"
"""Another column, of what is told of ids of events: which one had the id, or was stored with the one that had it."""
ANNOUNCED_COLUMNS: Final = {
    "stream": "string",
    "table_name": "string",
    "id": "bigint",
    "event_id": "string",
    "room_id": "string",
    "user_id": "string",
    "state_key": "string",
    "heard_at": "timestamp",
}
"""Columns of rows that a writer announced and that are not there, each id once; with their types."""

_EVENTS: Final = "events"
_CONTEXT: Final = {
    "event_id": "string",
    "room_id": "string",
    "user_id": "string",
    "state_key": "string",
    "depth": "bigint",
    "sender": "string",
}
_OF_EVENTS: Final = ("event_id", "room_id", "stream_ordering", "sender", "state_key", "depth", "outlier")
_THEN_AND_NOW: Final = {
    "events": (_EVENTS, *_OF_EVENTS),
    "depths": ("room_depth", "room_id", "min_depth"),
    "extremities": ("event_backward_extremities", "event_id", "room_id"),
}
"""Tables that are read as they are and as the release before has them, by the name of their view."""
_OF_ACCOUNTS: Final = ("account_data", "room_account_data")
_MEMBERSHIPS: Final = ("room_memberships", "local_current_membership", "current_state_events")

_EXPLAINED: Final = """
with gone_events as (select event_id, room_id, depth from gone where table_name = 'events'),
rooms_of_gone as (select distinct room_id from gone where room_id is not null),
kept as (
    select distinct room_id
    from former_events left semi join rooms_of_gone using (room_id) left semi join events using (event_id, room_id)
),
lives as (
    select room_id, max(depth) as depth
    from gone_events left semi join events using (event_id, room_id) group by room_id
),
purges as (
    select resource_id as room_id, bool_or(action <> 'purge_history') as of_room,
        bool_or(action = 'purge_history') as of_history
    from tasks group by resource_id
),
known as (select distinct room_id from former_events left semi join rooms_of_gone using (room_id)),
lived_on as (
    select distinct room_id from former_events left semi join rooms_of_gone using (room_id)
    left semi join events using (event_id, stream_ordering)
),
reborn as (
    select event_id from former_events left semi join gone using (event_id)
    left anti join events using (event_id, stream_ordering)
),
new_extremities as (select event_id from extremities left anti join former_extremities using (event_id)),
cut_off as (
    select event_id from events left semi join rooms_of_gone using (room_id) where outlier
    union all select event_id from new_extremities
),
cuts as (
    select room_id, max(depth) as depth
    from (
        select room_id, depth
        from former_events left semi join rooms_of_gone using (room_id) left semi join cut_off using (event_id)
        where not coalesce(outlier, false)
        union all select room_id, depth from gone_events left semi join new_extremities using (event_id)
    )
    group by room_id
),
survivors as (
    select room_id, server, min(depth) as depth
    from events left semi join (select room_id from purges where of_history) using (room_id)
    left semi join former_events using (event_id, stream_ordering)
    where state_key is null group by room_id, server
),
present as (
    select room_id, min(case when stream_ordering > 0 then stream_ordering end) as began
    from events left semi join rooms_of_gone using (room_id) group by room_id
),
signs as (
    select room_id, rooms.room_id is null or coalesce(purges.of_room, false) as was_deleted,
        kept.room_id is null and present.room_id is not null as began_anew,
        known.room_id is not null and lived_on.room_id is null and present.room_id is not null as was_emptied,
        known.room_id is null as is_new, present.began, coalesce(purges.of_history, false) as was_purged,
        lives.depth as came_back_below, cuts.depth as cut_below,
        depths.min_depth, former_depths.min_depth as former_min_depth
    from rooms_of_gone
    left join rooms using (room_id) left join purges using (room_id) left join kept using (room_id)
    left join known using (room_id) left join present using (room_id) left join lives using (room_id)
    left join lived_on using (room_id) left join cuts using (room_id)
    left join depths using (room_id) left join former_depths using (room_id)
)
select gone.stream, gone.table_name, gone.id, gone.witness,
    case
        when gone.table_name = 'events' and events.event_id is not null then 'second_life'
        when gone.table_name <> 'events' and gone.event_id is not null and events.event_id is null then 'event_gone'
        when gone.table_name = 'un_partial_stated_event_stream' and reborn.event_id is not null then 'second_life'
        when signs.was_deleted then 'room_deleted'
        when gone.table_name = 'un_partial_stated_room_stream' and signs.was_emptied then 'room_deleted'
        when gone.table_name = 'events' and signs.began_anew
            and (gone.witness = 'accepted_row' or not signs.is_new or gone.id < signs.began) then 'room_deleted'
        when gone.table_name <> 'events' and signs.began_anew and gone.witness = 'rdata' then 'room_deleted'
        when gone.table_name = 'events' and gone.state_key is null and (
            (signs.was_purged and coalesce(gone.depth <= survivors.depth, true))
            or (gone.depth < signs.min_depth and signs.min_depth > coalesce(signs.former_min_depth, -1))
            or gone.depth <= greatest(signs.came_back_below, signs.cut_below)
            or (gone.depth is null and signs.cut_below is not null)
            or signs.min_depth > case
                when gone.witness = 'accepted_row' then null
                when gone.is_recent then coalesce(signs.former_min_depth, 1)
                else 1
            end
        ) then 'history_purged'
        when gone.table_name = 'push_rules_stream' and closed.name is not null then 'account_closed'
    end as explanation, case when gone.table_name = 'events' then gone.event_id end as event_id
from gone left join signs on gone.room_id = signs.room_id
left join survivors on gone.room_id = survivors.room_id and gone.server = survivors.server
left join events on gone.event_id = events.event_id left join reborn on gone.event_id = reborn.event_id
left join closed on gone.user_id = closed.name
"""
"""Reads ``gone``: rows of append-only tables that are not there any more. Of those that were only announced the depth
is not known: any purge of the room may have taken them. ``is_recent``: it was announced since the release before, so
that the purge must be as young. ``reborn``, ``was_emptied``: the rows of ``un_partial_stated_*`` go with those of their
event or room (``on delete cascade``), also where these are back by now: then no event has the id that it had."""

_CLOCKS: Final = 300_000
"""Milliseconds by which the clocks of the source and of a tap may differ."""


def find_vanished_ids(
    held: StreamTables, since: int | None, announced: Sequence[Mapping[str, Any]] = ()
) -> DataFrame | None:
    """Rows of append-only tables that the release before has and bronze now has not, in ``COLUMNS``, ``EVENT``.

    None if there is none.

    :param announced: rows that a writer announced and that are not there, with the columns ``ANNOUNCED``.
    :param since: milliseconds since the epoch at which the source was read for that release.
    """
    frames = [
        _gone(held, stream, table, before)
        for stream, table, before in held.changed()
        if effective_contiguity(stream, table) is Contiguity.APPEND_ONLY
    ]
    if announced:
        frames.append(_announced(held, announced, since))
    if not frames:
        return None
    gone = union_all(frames).persist()
    if gone.isEmpty():
        return None
    server = f.expr("substring(sender, locate(':', sender) + 1)").alias("server")
    views = {"rooms": held.now("rooms", "room_id")}
    for name, (table, *columns) in _THEN_AND_NOW.items():
        now, was = held.now(table, *columns), held.before(table)
        views |= {name: now, f"former_{name}": now if was is None else was}
    tasks = held.now("scheduled_tasks", "action", "resource_id", "timestamp", "status")
    tasks = tasks.where((f.col("timestamp") >= (since or 0)) & f.col("status").isin("active", "complete"))
    views |= {
        "gone": gone.select("*", server),
        "events": views["events"].select("*", server),
        "tasks": tasks.where(f.col("action").isin("purge_history", "purge_room", "shutdown_and_purge_room")),
        "closed": _closed(held, gone),
    }
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    return held.spark.sql(_EXPLAINED)


def _closed(held: StreamTables, gone: DataFrame) -> DataFrame:
    """Column: name, of users whose account was closed, also where it was opened again since.

    Nothing else takes all account data of a user.
    """
    closed = held.now("users", "name", "deactivated").where("deactivated = 1").select("name")
    users = gone.where("table_name = 'push_rules_stream'").select("user_id").distinct()
    before = [one for name in _OF_ACCOUNTS if (one := held.before(name)) is not None]
    if not before or users.isEmpty():
        return closed
    key = ["user_id", "stream_id"]
    was = union_all([one.select(*key) for one in before]).join(f.broadcast(users), "user_id", "left_semi")
    left = was.join(union_all([held.now(name, *key) for name in _OF_ACCOUNTS]), key, "left_semi")
    return closed.union(was.join(left, "user_id", "left_anti").select("user_id").distinct()).distinct()


def find_regressed_keys(held: StreamTables) -> DataFrame | None:
    """Highest ids of keys that have a lower id now, in ``COLUMNS``, ``EVENT``; None if no table was changed that
    could tell."""
    frames = []
    for stream, table, before in held.changed():
        bound = held.bound(stream)
        if effective_contiguity(stream, table) is Contiguity.UPSERT and bound is not None:
            key = f.to_json(f.struct(*(table.rises_per or table.primary_key))).alias("key")
            highest = f.max(f.expr(distance_sql(stream, table)))
            was = before.where(held.is_other(stream, table, [held.accepted])).groupBy(key).agg(highest.alias("id"))
            # Beyond it two writes of a key may be under way, of which the one with the lower id commits last.
            was = was.where(f.col("id") <= stream.direction * bound)
            keys = held.spark.table(f"bronze.{table.name}").withColumn("key", key).join(was, "key", "left_semi")
            now = keys.groupBy("key").agg(highest.alias("now"))
            fell = was.join(now, "key").where(f.col("now") < f.col("id"))
            told = f.lit(stream.name).alias("stream"), f.lit(table.name).alias("table_name"), "id"
            nothing = (f.lit(None).cast("string").alias(name) for name in ("explanation", EVENT_COLUMN))
            frames.append(fell.select(*told, f.lit(Evidence.OTHER_ID.value).alias("witness"), *nothing))
    return union_all(frames).distinct() if frames else None


def find_referenced_ids(held: StreamTables, stream: Stream, after: int, until: int) -> DataFrame | None:
    """Ids of ``stream`` from ``after`` to ``until`` that rows of other tables give to events that are not there.

    In ``COLUMNS``, ``EVENT``; None if there is none. A change of state has the id of the first event that was stored
    with its own. A room that was deleted and joined again began anew: what is from before is explained by that.
    """
    there = held.now(_EVENTS, "event_id", "room_id", "stream_ordering")
    ends = sorted((stream.direction * after, stream.direction * until))
    # Files of other ids are not read.
    closed = there.where(f.col("stream_ordering").between(*ends))
    id_there = closed.select((f.col("stream_ordering") * stream.direction).alias("id"))
    naming = [
        _naming(held, name, "event_stream_ordering", stream).withColumn("witness", f.lit(Evidence.MEMBERSHIP.value))
        for name in _MEMBERSHIPS
    ]
    if stream.sign == "positive":
        deltas = _naming(held, "current_state_delta_stream", "stream_id", stream)
        naming.append(deltas.withColumn("witness", f.lit(Evidence.DELTA.value)))
    idless = union_all(naming).where((f.col("id") > after) & (f.col("id") <= until)).join(id_there, "id", "left_anti")
    if idless.persist().isEmpty():
        return None
    orphans = idless.join(there, "event_id", "left_anti").select("id", "room_id", "witness", EVENT_COLUMN).distinct()
    began = there.where("stream_ordering > 0").groupBy("room_id").agg(f.min("stream_ordering").alias("began"))
    is_deleted = f.col("began").isNull() | (f.lit(stream.sign == "positive") & (f.col("began") > f.col("id")))
    explanation = f.when(is_deleted, f.lit(Explanation.ROOM_DELETED.value))
    return orphans.join(began, "room_id", "left").select(
        f.lit(stream.name).alias("stream"),
        f.lit(_EVENTS).alias("table_name"),
        "id",
        "witness",
        explanation.alias("explanation"),
        EVENT_COLUMN,
    )


def _naming(held: StreamTables, name: str, column: str, stream: Stream) -> DataFrame:
    # A change that only removes a piece of state has no event.
    rows = held.now(name, "event_id", "room_id", column).where("event_id is not null")
    return rows.select("event_id", "room_id", (f.col(column).cast("bigint") * stream.direction).alias("id"))


def _gone(held: StreamTables, stream: Stream, table: Table, before: DataFrame) -> DataFrame:
    """Columns: stream, table_name, id, what the row says of ``_CONTEXT``, witness, is_recent."""
    is_in_key = table.streams[stream.name] in table.primary_key
    key = list(table.primary_key) if is_in_key else [table.streams[stream.name]]
    now = held.spark.table(f"bronze.{table.name}").select(*key)
    known = {column.name for column in table.columns}
    context = [(f.col(one) if one in known else f.lit(None)).cast(of).alias(one) for one, of in _CONTEXT.items()]
    was = before.where(f"{has_id_sql(stream, table)} and {held.is_other(stream, table, [held.accepted])}")
    gone = was.join(now, key, "left_anti")
    names = f.lit(stream.name).alias("stream"), f.lit(table.name).alias("table_name")
    witness = f.lit(Evidence.ACCEPTED_ROW.value).alias("witness"), f.lit(True).alias("is_recent")
    return gone.select(*names, f.expr(distance_sql(stream, table)).alias("id"), *context, *witness)


def _announced(held: StreamTables, announced: Sequence[Mapping[str, Any]], since: int | None) -> DataFrame:
    """As :func:`_gone`."""
    columns = ", ".join(f"{name} {of}" for name, of in ANNOUNCED_COLUMNS.items())
    rows = held.spark.createDataFrame([tuple(row[name] for name in ANNOUNCED_COLUMNS) for row in announced], columns)
    is_recent = f.unix_millis("heard_at") >= since + _CLOCKS if since else f.lit(False)
    context = [
        (f.col(one) if one in ANNOUNCED_COLUMNS else f.lit(None)).cast(of).alias(one) for one, of in _CONTEXT.items()
    ]
    witness = f.lit(Evidence.RDATA.value).alias("witness"), is_recent.alias("is_recent")
    return rows.select("stream", "table_name", "id", *context, *witness)
