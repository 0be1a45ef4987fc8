"""Replication: the delay until the tap received rows, by stream writer."""

from functools import partial
from typing import Final

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Section

_LAG: Final = """
with recent as (
  select stream || ': ' || coalesce(instance, 'all writers') as writer, hour, announced, median_ms, p95_ms
  from gold.replication_lag where hour >= (select max(hour) from gold.replication_lag) - interval 7 days
),
busiest as (select writer from recent group by writer order by sum(announced) desc, writer limit 8)
select hour, writer, sum(announced)::bigint as announced, max(median_ms) as median_ms, max(p95_ms) as p95_ms
from recent where writer in (from busiest) group by 1, 2 order by 1, 2
"""

SECTION: Final = Section(
    "replication",
    "Replication",
    "Which writer is late?",
    (
        Panel(
            "replication-lag",
            "Replication delay by writer",
            "95th percentile of the time from Synapse's receipt of an event, or from a cache invalidation, until the "
            "replication tap received the row, by hour of the last week.",
            _LAG,
            (
                Column("hour", "Hour", Format.TIME),
                Column("writer", "Stream and writer"),
                Column("announced", "Rows", Format.NUMBER),
                Column("median_ms", "Median", Format.MILLISECONDS),
                Column("p95_ms", "95th percentile", Format.MILLISECONDS),
            ),
            "No replication tap has listened yet. `uv run lakehouse replicate tap` starts one.",
            partial(charts.draw_hourly_delays, series="writer"),
        ),
    ),
)
