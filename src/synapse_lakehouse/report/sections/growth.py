"""Growth: events per day by type and by room, and the relations of Synapse's database by size."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import altair as alt

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section

_BY_TYPE: Final = """
with daily as (
  select cast(received_at as date) as day, type, count(*) as events from gold.events
  where received_at >= (select max(received_at) from gold.events) - interval 60 days
  group by 1, 2
),
largest as (select type from daily group by type order by sum(events) desc, type limit 7)
select
  day, case when type in (from largest) then type else 'other types' end as event_type, sum(events)::bigint as events
from daily group by 1, 2 order by 1, 2
"""
_BY_ROOM: Final = """
with daily as (
  select cast(received_at as date) as day, room_id, count(*) as events from gold.events
  where received_at >= (select max(received_at) from gold.events) - interval 60 days
  group by 1, 2
),
largest as (select room_id from daily group by room_id order by sum(events) desc, room_id limit 7),
named as (
  select room_id, coalesce(name || ' (' || left(room_id, 8) || '…)', room_id) as room
  from silver.rooms where room_id in (from largest)
)
select
  day, case when room_id in (from largest) then coalesce(room, room_id) else 'other rooms' end as room,
  sum(events)::bigint as events
from daily left join named using (room_id) group by 1, 2 order by 1, 2
"""
_SIZES: Final = """
with measured as (
  from audit.relation_sizes where kind in ('table', 'partition', 'materialized_view') and bytes is not null
),
latest as (from measured qualify row_number() over (partition by schema_name, name order by measured_at desc) = 1),
month as (
  select schema_name, name, regr_slope(bytes, epoch(measured_at)) * 86400 as bytes_per_day
  from measured where measured_at >= (select max(measured_at) from measured) - interval 30 days
  group by all having count(distinct cast(measured_at as date)) > 2
)
select
  if(schema_name = 'public', name, schema_name || '.' || name) as relation,
  bytes - coalesce(index_bytes, 0) as table_bytes, coalesce(index_bytes, 0) as index_bytes, bytes,
  live_rows, dead_rows, bytes_per_day,
  bytes + 30 * bytes_per_day as bytes_in_30_days
from latest left join month using (schema_name, name)
where measured_at >= (select max(measured_at) from measured) - interval 2 days
order by bytes desc, relation limit 15
"""
_EVENTS: Final = "No event has been received yet."


def _draw_sizes(rows: Sequence[Row]) -> alt.Chart:
    parts = [
        {"relation": row["relation"], "part": part, "bytes": row[name]}
        for row in rows
        for name, part in (("table_bytes", "table"), ("index_bytes", "indexes"))
    ]
    return charts.draw_bars(parts, "relation", "bytes", "size", "part", is_bytes=True)


SECTION: Final = Section(
    "growth",
    "Growth",
    "What fills the disk, and which room grows?",
    (
        Panel(
            "relation-sizes",
            "Largest relations of Synapse's database",
            "A table with its TOAST, and its indexes. The forecast is a straight line through the last 30 days; it "
            "needs three days of measurements.",
            _SIZES,
            (
                Column("relation", "Relation"),
                Column("bytes", "Size", Format.BYTES),
                Column("index_bytes", "Of this, indexes", Format.BYTES),
                Column("live_rows", "Rows (estimate)", Format.NUMBER),
                Column("dead_rows", "Dead rows (estimate)", Format.NUMBER),
                Column("bytes_per_day", "Growth per day", Format.BYTES),
                Column("bytes_in_30_days", "In 30 days", Format.BYTES),
            ),
            "No run has measured the sizes of relations yet.",
            _draw_sizes,
        ),
        Panel(
            "events-by-type",
            "Events per day by type",
            "Events that this server received in the last 60 days with events: the seven most frequent types.",
            _BY_TYPE,
            (Column("day", "Day", Format.DAY), Column("event_type", "Type"), Column("events", "Events", Format.NUMBER)),
            _EVENTS,
            partial(charts.draw_stacked_days, day="day", series="event_type", value="events", title="events per day"),
        ),
        Panel(
            "events-by-room",
            "Events per day by room",
            "Events that this server received in the last 60 days with events: the seven busiest rooms.",
            _BY_ROOM,
            (Column("day", "Day", Format.DAY), Column("room", "Room"), Column("events", "Events", Format.NUMBER)),
            _EVENTS,
            partial(charts.draw_stacked_days, day="day", series="room", value="events", title="events per day"),
        ),
    ),
)
