"""Growth: disks and relations by size, and events per day by type and by room."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import altair as alt

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section
from synapse_lakehouse.sizes.summary import SizeRow, SizeSummary, summarize

_BY_TYPE: Final = """
with received as (from gold.events where received_at < now() + interval 1 day),
daily as (
  select cast(received_at as date) as day, type, count(*) as events from received
  where received_at >= (select max(received_at) from received) - interval 60 days
  group by 1, 2
),
largest as (select type from daily group by type order by sum(events) desc, type limit 7)
select
  day, case when type in (from largest) then type else 'other types' end as event_type, sum(events)::bigint as events
from daily group by 1, 2 order by 1, 2
"""
_BY_ROOM: Final = """
with received as (from gold.events where received_at < now() + interval 1 day),
daily as (
  select cast(received_at as date) as day, room_id, count(*) as events from received
  where received_at >= (select max(received_at) from received) - interval 60 days
  group by 1, 2
),
largest as (
  select room_id from daily where day > (select max(day) from daily) - 7
  group by room_id order by sum(events) desc, room_id limit 7
),
named as (
  select room_id, name, coalesce(left(name, 30) || ' (' || left(room_id, 8) || '…)', room_id) as room
  from silver.rooms where room_id in (from largest)
),
labelled as (
  select day, events, case when room_id in (from largest) then room_id end as room_id from daily
)
select day, coalesce(room, room_id, 'other rooms') as room, room_id, sum(events)::bigint as events
from labelled left join named using (room_id) group by 1, 2, 3 order by 1, 2, 3
"""
_GROWING_ROOMS: Final = """
with received as (from gold.events where received_at < now() + interval 1 day),
daily as (
  select cast(received_at as date) as day, room_id, count(*) as events, sum(json_bytes) as bytes from received
  where received_at >= (select max(received_at) from received) - interval 15 days
  group by 1, 2
),
last as (select max(day) as until from daily),
counted as (
  select
    room_id, until, max(day) as last_day,
    (sum(events) filter (day > until - 7))::bigint as events,
    coalesce(sum(events) filter (day <= until - 7 and day > until - 14), 0)::bigint as events_before,
    (sum(bytes) filter (day > until - 7))::bigint as json_bytes
  from daily cross join last group by room_id, until
)
select coalesce(left(name, 30) || ' (' || left(room_id, 8) || '…)', room_id) as room, room_id, name, events,
  events_before, json_bytes, last_day, until, (sum(events) over ())::bigint as all_events
from counted left join silver.rooms using (room_id) where events > 0 order by events desc, room_id limit 10
"""
_RECENT_SIZES: Final = """
with recent as (
  from audit.relation_sizes where measured_at >= (select max(measured_at) from audit.relation_sizes) - interval 35 days
),
chosen as (
  select kind, coalesce(schema_name, '') as schema_name, name from recent
  where measured_at = (select max(measured_at) from recent) and {which} order by bytes desc nulls last, name limit 16
)
select recent.* from recent join chosen
  on recent.kind = chosen.kind and coalesce(recent.schema_name, '') = chosen.schema_name and recent.name = chosen.name
"""
_NO_SIZES: Final = "No run has measured sizes yet."
_EVENTS: Final = "No event has been received yet."


def _summarize(rows: Sequence[Row], *_: object) -> list[Row]:
    """The newest row of each size, the largest first, with its growth and forecast."""
    return [_describe(summary) for summary in summarize(map(SizeRow.of, rows))]


def _add_others(rows: Sequence[Row], *_: object) -> list[Row]:
    """The relations of :func:`_summarize`, and a row for the rest of the database."""
    summaries = _summarize(rows)
    relations = [row for row in summaries if row["kind"] != "database"]
    database = sum(row["bytes"] or 0 for row in summaries if row["kind"] == "database")
    rest = database - sum(row["bytes"] or 0 for row in relations)
    if rest <= 0 or not relations:
        return relations
    return [*relations, dict.fromkeys(relations[0]) | {"kind": "others", "name": "others, and catalogs", "bytes": rest}]


def _describe(summary: SizeSummary) -> Row:
    row, growth, forecast = summary.latest, summary.growth, summary.forecast
    kind, schema = row.kind.replace("_", " "), row.schema_name
    return {
        "kind": row.kind,
        "name": f"{kind} {row.name}" if schema is None else row.name if schema == "public" else f"{schema}.{row.name}",
        "bytes": row.bytes,
        "table_bytes": (row.bytes or 0) - (row.index_bytes or 0),
        "index_bytes": row.index_bytes,
        "free_bytes": row.free_bytes,
        "live_rows": row.live_rows,
        "dead_rows": row.dead_rows,
        "per_day": growth.bytes_per_day if growth else None,
        "per_day_low": growth.low if growth else None,
        "per_day_high": growth.high if growth else None,
        "full_in_days": forecast.days if forecast else None,
        "full_earliest": forecast.earliest if forecast else None,
        "full_latest": forecast.latest if forecast else None,
    }


def _draw_sizes(rows: Sequence[Row]) -> alt.Chart:
    parts = [
        {"relation": row["name"], "part": part, "bytes": row[name] or 0}
        for row in rows
        if row["kind"] != "others"
        for name, part in (("table_bytes", "table"), ("index_bytes", "indexes"))
    ]
    return charts.draw_bars(parts, "relation", "bytes", "size", "part", Format.BYTES, is_stacked=True)


def _draw_rooms(rows: Sequence[Row]) -> alt.Chart:
    counts = [
        {"room": row["room"], "days": days, "events": row[column]}
        for row in rows
        for column, days in (("events", "last 7 days"), ("events_before", "7 days before"))
        if row[column]
    ]
    return charts.draw_bars(counts, "room", "events", "events", "days")


def _name_first_day(rows: Sequence[Row]) -> str:
    days = [row["day"] for row in rows]
    first, last = min(days), max(days)
    return f"The earliest of these events is of {first}." if last - first < timedelta(days=59) else ""


def _describe_growth(rows: Sequence[Row]) -> str:
    if all(row["per_day"] is None for row in rows):
        return "The growth is known after another run, at least six hours later."
    return (
        "Growth is the median slope of the last five weeks, with a 95% interval. If a size grew faster in the last "
        "week, its growth is that of the last week."
    )


def _describe_disks(rows: Sequence[Row]) -> str:
    has_slot = any(row["kind"] == "replication_slot" for row in rows)
    return f"{'' if has_slot else 'No replication slot retains WAL. '}{_describe_growth(rows)}"


_GROWTH_COLUMNS: Final = (
    Column("per_day", "Growth per day", Format.BYTES),
    Column("per_day_low", "at least", Format.BYTES),
    Column("per_day_high", "at most", Format.BYTES),
)

SECTION: Final = Section(
    "growth",
    "Growth",
    "What fills the disk, and which room grows?",
    (
        Panel(
            "disks",
            "Size of Synapse's database and of the lake",
            "Measured before the run copied tables, with the WAL that replication slots retain. The free bytes of "
            "Synapse's disk are known if `LAKEHOUSE_SOURCE_DISK_BYTES` is set in `.env`.",
            _RECENT_SIZES.format(which="schema_name is null"),
            (
                Column("name", "Disk"),
                Column("bytes", "Size", Format.BYTES),
                Column("free_bytes", "Free", Format.BYTES),
                *_GROWTH_COLUMNS,
                Column("full_in_days", "Full in days", Format.NUMBER),
                Column("full_earliest", "at the earliest", Format.NUMBER),
                Column("full_latest", "at the latest", Format.NUMBER),
            ),
            _NO_SIZES,
            partial(charts.draw_bars, label="name", value="bytes", title="size", unit=Format.BYTES),
            _summarize,
            _describe_disks,
        ),
        Panel(
            "relation-sizes",
            "Largest relations of Synapse's database",
            "A table with its TOAST, and its indexes. The last row of the table below, which the chart omits, is the "
            "rest of the database.",
            _RECENT_SIZES.format(which="(schema_name is not null or kind = 'database')"),
            (
                Column("name", "Relation"),
                Column("bytes", "Size", Format.BYTES),
                Column("index_bytes", "Of this, indexes", Format.BYTES),
                Column("live_rows", "Rows (estimate)", Format.NUMBER),
                Column("dead_rows", "Dead rows (estimate)", Format.NUMBER),
                *_GROWTH_COLUMNS,
            ),
            _NO_SIZES,
            _draw_sizes,
            _add_others,
            _describe_growth,
        ),
        Panel(
            "events-by-type",
            "Events per day by type",
            "Events that this server received in the 60 days until its newest event: the seven most frequent types.",
            _BY_TYPE,
            (Column("day", "Day", Format.DAY), Column("event_type", "Type"), Column("events", "Events", Format.NUMBER)),
            _EVENTS,
            partial(charts.draw_stacked_days, day="day", series="event_type", value="events", title="events per day"),
            note=_name_first_day,
        ),
        Panel(
            "growing-rooms",
            "Rooms with the most new events",
            "Events that this server received in the 7 days until its newest event, and in the 7 days before. Their "
            "size is that of their JSON.",
            _GROWING_ROOMS,
            (
                Column("room", "Room"),
                Column("events", "Events of 7 days", Format.NUMBER),
                Column("events_before", "7 days before", Format.NUMBER),
                Column("json_bytes", "Size", Format.BYTES),
                Column("last_day", "Last event", Format.DAY),
                Column("room_id", "Room ID"),
            ),
            _EVENTS,
            _draw_rooms,
        ),
        Panel(
            "events-by-room",
            "Events per day by room",
            "Events that this server received in the 60 days until its newest event. Shown are the seven rooms with "
            "the most events of the last 7 days.",
            _BY_ROOM,
            (
                Column("day", "Day", Format.DAY),
                Column("room", "Room"),
                Column("events", "Events", Format.NUMBER),
                Column("room_id", "Room ID"),
            ),
            _EVENTS,
            partial(charts.draw_stacked_days, day="day", series="room", value="events", title="events per day"),
            note=_name_first_day,
        ),
    ),
)
