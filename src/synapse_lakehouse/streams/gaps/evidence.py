"""Find vanished stream IDs: their row existed and is missing. Find evidence of this, and the reason of the absence.

When Synapse deletes rows itself, it leaves signs: a missing room, an increased minimum depth of the room, a purge task,
an event that is stored again with another ID, a closed account.

A purge of history deletes messages up to a depth and no state (``synapse.storage.databases.main.purge_events``). It
deletes the messages of all users, or of all remote users. So if a purge deleted a message, no message of lower depth
from the same server remains. Events that remain below the depth become outliers. Events to which the remaining events
refer become the room's backward extremities. Only a purge turns a stored event into an outlier or a backward extremity.
A purge by retention has no task, and the minimum depth may decrease again.
"""

from collections.abc import Container
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Contiguity, Stream, Table, effective_contiguity
from synapse_lakehouse.streams.gaps.classify import Evidence, Explanation
from synapse_lakehouse.streams.sql import EXPLANATIONS
from synapse_lakehouse.streams.stream_tables import StreamTables, belongs_to_stream_sql, distance_sql, union_all

EVIDENCE_COLUMNS: Final = ("stream", "table_name", "id", "evidence", "explanation")
EVENT_COLUMN: Final = "event_id"
"""Additional column for event streams: the event with the ID, or an event of the same transaction."""
ANNOUNCED_COLUMNS: Final = {
    "stream": "string",
    "table_name": "string",
    "id": "bigint",
    "event_id": "string",
    "room_id": "string",
    "user_id": "string",
    "state_key": "string",
    "received_at": "timestamp",
}
"""Column types of announced rows that are not stored. Each ID occurs once."""

_EVENTS: Final = "events"
_CONTEXT: Final = {
    "event_id": "string",
    "room_id": "string",
    "user_id": "string",
    "state_key": "string",
    "depth": "bigint",
    "sender": "string",
}
_EVENT_COLUMNS: Final = ("event_id", "room_id", "stream_ordering", "sender", "state_key", "depth", "outlier")
_COMPARED_VIEWS: Final = {
    "events": (_EVENTS, *_EVENT_COLUMNS),
    "depths": ("room_depth", "room_id", "min_depth"),
    "extremities": ("event_backward_extremities", "event_id", "room_id"),
}
"""Table and columns by view name. A second view, ``former_<view>``, reads the previous release."""
_ACCOUNT_DATA_TABLES: Final = ("account_data", "room_account_data")
_MEMBERSHIP_TABLES: Final = ("room_memberships", "local_current_membership", "current_state_events")

_MAXIMUM_CLOCK_SKEW: Final = 300_000
"""Maximum difference between the clocks of the source and of a replication tap, in milliseconds."""


def find_vanished_ids(
    tables: StreamTables, previous_read_at: int | None, announced: DataFrame | None = None
) -> DataFrame | None:
    """Return the IDs of vanished rows of append-only tables; None if there are none.

    A vanished row is not stored now, but the previous release contains it, or a writer announced it. The columns are
    ``EVIDENCE_COLUMNS`` and ``EVENT_COLUMN``.

    :param previous_read_at: time at which the previous release read the source, in milliseconds since the epoch.
    :param announced: rows that a writer announced and that are not stored, with the columns ``ANNOUNCED_COLUMNS``.
    """
    frames = [
        _gone_rows(tables, stream, table, previous)
        for stream, table, previous in tables.list_changed_stream_tables()
        if effective_contiguity(stream, table) is Contiguity.APPEND_ONLY
    ]
    if announced is not None:
        frames.append(_announced_rows(announced, previous_read_at))
    if not frames:
        return None
    missing_rows = union_all(frames).persist()
    if missing_rows.isEmpty():
        return None
    _create_views(tables, missing_rows, previous_read_at)
    return tables.spark.sql(EXPLANATIONS)


def _create_views(tables: StreamTables, missing_rows: DataFrame, previous_read_at: int | None) -> None:
    """Create the views that ``EXPLANATIONS`` reads.

    :param missing_rows: vanished rows, with the columns of :func:`_gone_rows`.
    """
    server = f.expr("substring(sender, locate(':', sender) + 1)").alias("server")
    views = {"rooms": tables.current("rooms", "room_id")}
    for name, (table, *columns) in _COMPARED_VIEWS.items():
        now, previous = tables.current(table, *columns), tables.previous_version(table)
        views |= {name: now, f"former_{name}": now if previous is None else previous}
    tasks = tables.current("scheduled_tasks", "action", "resource_id", "timestamp", "status")
    tasks = tasks.where((f.col("timestamp") >= (previous_read_at or 0)) & f.col("status").isin("active", "complete"))
    views |= {
        "gone": missing_rows.select("*", server),
        "events": views["events"].select("*", server),
        "tasks": tasks.where(f.col("action").isin("purge_history", "purge_room", "shutdown_and_purge_room")),
        "closed": _closed_accounts(tables, missing_rows),
    }
    for name, view in views.items():
        view.createOrReplaceTempView(name)


def _closed_accounts(tables: StreamTables, missing_rows: DataFrame) -> DataFrame:
    """Return users whose account was closed, even if it was opened again, in the column ``name``.

    Only the closing of an account deletes all account data of a user.

    :param missing_rows: vanished rows, with the columns of :func:`_gone_rows`.
    """
    closed = tables.current("users", "name", "deactivated").where("deactivated = 1").select("name")
    users = missing_rows.where("table_name = 'push_rules_stream'").select("user_id").distinct()
    previous = [frame for name in _ACCOUNT_DATA_TABLES if (frame := tables.previous_version(name)) is not None]
    if not previous or users.isEmpty():
        return closed
    key = ["user_id", "stream_id"]
    before = union_all([frame.select(*key) for frame in previous]).join(f.broadcast(users), "user_id", "left_semi")
    now = union_all([tables.current(name, *key) for name in _ACCOUNT_DATA_TABLES])
    remaining = before.join(now, key, "left_semi")
    return closed.union(before.join(remaining, "user_id", "left_anti").select("user_id").distinct()).distinct()


def find_regressed_keys(tables: StreamTables) -> DataFrame | None:
    """Return former IDs of keys whose highest ID decreased since the previous release; None if no table was searched.

    The columns are ``EVIDENCE_COLUMNS`` and ``EVENT_COLUMN``.
    """
    frames = []
    for stream, table, previous in tables.list_changed_stream_tables():
        bound = tables.previous_bound(stream)
        if effective_contiguity(stream, table) is Contiguity.UPSERT and bound is not None:
            key = f.to_json(f.struct(*(table.rises_per or table.primary_key))).alias("key")
            highest = f.max(f.expr(distance_sql(stream, table)))
            is_changed = tables.is_changed_sql(stream, table, [tables.previous])
            before = previous.where(is_changed).groupBy(key).agg(highest.alias("id"))
            # Above the bound, two writes of one key may be in flight, and the write with the lower ID may commit last.
            before = before.where(f.col("id") <= stream.direction * bound)
            rows = tables.spark.table(f"bronze.{table.name}").withColumn("key", key).join(before, "key", "left_semi")
            now = rows.groupBy("key").agg(highest.alias("now"))
            regressed = before.join(now, "key").where(f.col("now") < f.col("id"))
            names = f.lit(stream.name).alias("stream"), f.lit(table.name).alias("table_name"), "id"
            nulls = (f.lit(None).cast("string").alias(name) for name in ("explanation", EVENT_COLUMN))
            frames.append(regressed.select(*names, f.lit(Evidence.OTHER_ID.value).alias("evidence"), *nulls))
    return union_all(frames).distinct() if frames else None


def find_referenced_ids(tables: StreamTables, stream: Stream, after: int, until: int) -> DataFrame | None:
    """Return IDs in (``after``, ``until``] that other tables record for events that are not stored; else None.

    The columns are ``EVIDENCE_COLUMNS`` and ``EVENT_COLUMN``. A change of state has the ID of the first event in its
    transaction. If a room was deleted and joined again, the deletion explains IDs from before the second join.
    """
    events = tables.current(_EVENTS, "event_id", "room_id", "stream_ordering")
    ends = sorted((stream.direction * after, stream.direction * until))
    # The filter is on the column itself, so that Iceberg skips data files.
    in_window = events.where(f.col("stream_ordering").between(*ends))
    stored_ids = in_window.select((f.col("stream_ordering") * stream.direction).alias("id"))
    references = [
        _references(tables, name, "event_stream_ordering", stream, Evidence.MEMBERSHIP) for name in _MEMBERSHIP_TABLES
    ]
    if stream.sign == "positive":
        references.append(_references(tables, "current_state_delta_stream", "stream_id", stream, Evidence.DELTA))
    is_in_window = (f.col("id") > after) & (f.col("id") <= until)
    rowless = union_all(references).where(is_in_window).join(stored_ids, "id", "left_anti")
    if rowless.persist().isEmpty():
        return None
    lost_events = (
        rowless.join(events, "event_id", "left_anti").select("id", "room_id", "evidence", EVENT_COLUMN).distinct()
    )
    first_events = events.where("stream_ordering > 0").groupBy("room_id").agg(f.min("stream_ordering").alias("began"))
    is_deleted = f.col("began").isNull() | (f.lit(stream.sign == "positive") & (f.col("began") > f.col("id")))
    explanation = f.when(is_deleted, f.lit(Explanation.ROOM_DELETED.value))
    return lost_events.join(first_events, "room_id", "left").select(
        f.lit(stream.name).alias("stream"),
        f.lit(_EVENTS).alias("table_name"),
        "id",
        "evidence",
        explanation.alias("explanation"),
        EVENT_COLUMN,
    )


def _references(tables: StreamTables, name: str, column: str, stream: Stream, evidence: Evidence) -> DataFrame:
    # A change that only removes a piece of state has no event.
    rows = tables.current(name, "event_id", "room_id", column).where("event_id is not null")
    distance = (f.col(column).cast("bigint") * stream.direction).alias("id")
    return rows.select("event_id", "room_id", distance).withColumn("evidence", f.lit(evidence.value))


def _gone_rows(tables: StreamTables, stream: Stream, table: Table, previous: DataFrame) -> DataFrame:
    """Return vanished rows. Columns: stream, table_name, id, the keys of ``_CONTEXT``, evidence, is_recent.

    :param previous: the rows of ``table`` in the previous release, with all of its columns.
    """
    is_in_key = table.streams[stream.name] in table.primary_key
    key = list(table.primary_key) if is_in_key else [table.streams[stream.name]]
    now = tables.spark.table(f"bronze.{table.name}").select(*key)
    columns = {column.name for column in table.columns}
    is_changed = tables.is_changed_sql(stream, table, [tables.previous])
    missing_rows = previous.where(f"{belongs_to_stream_sql(stream, table)} and {is_changed}").join(
        now, key, "left_anti"
    )
    names = f.lit(stream.name).alias("stream"), f.lit(table.name).alias("table_name")
    evidence = f.lit(Evidence.ACCEPTED_ROW.value).alias("evidence"), f.lit(True).alias("is_recent")
    return missing_rows.select(*names, f.expr(distance_sql(stream, table)).alias("id"), *_context(columns), *evidence)


def _announced_rows(announced: DataFrame, previous_read_at: int | None) -> DataFrame:
    """Return the ``announced`` rows (``ANNOUNCED_COLUMNS``) that are not stored, with the columns of ``_gone_rows``."""
    recent_from = previous_read_at + _MAXIMUM_CLOCK_SKEW if previous_read_at else None
    is_recent = f.unix_millis("received_at") >= recent_from if recent_from else f.lit(False)
    evidence = f.lit(Evidence.RDATA.value).alias("evidence"), is_recent.alias("is_recent")
    return announced.select("stream", "table_name", "id", *_context(ANNOUNCED_COLUMNS), *evidence)


def _context(columns: Container[str]) -> list[Column]:
    """Return the columns of ``_CONTEXT``. A column that is not in ``columns`` is NULL."""
    return [
        (f.col(name) if name in columns else f.lit(None)).cast(type_).alias(name) for name, type_ in _CONTEXT.items()
    ]
