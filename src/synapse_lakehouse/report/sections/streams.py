"""Streams: open IDs now, over a day and over a month, and writers whose position does not change."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import altair as alt

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section

_NOT_WATCHED: Final = (
    "The DAG stream_watch has not observed Synapse yet. It does so every five minutes while Airflow (`make ui`) runs."
)
_OPEN_IDS: Final = """
with watched as (
  select stream, watched_at, greatest(last_allocated_id - abs(safe_bound), 0) as open_ids
  from audit.stream_watch
  where watched_at >= (select max(watched_at) from audit.stream_watch) - interval {span}
),
busiest as (
  select stream from watched group by stream order by max(open_ids) desc nulls last, stream limit 8
)
select time_bucket(interval {step}, watched_at) as at, stream, max(open_ids) as open_ids
from watched where stream in (from busiest) group by 1, 2 order by 1, 2
"""
_POSITIONS: Final = """
with latest as (
  select run_id, accepted_at from audit.releases order by release desc limit 1
),
measured as (
  select positions.* from audit.stream_positions as positions join latest using (run_id)
  where measured_at <= accepted_at
  qualify row_number() over (partition by stream order by measured_at desc) = 1
),
allocated as (select *, sequence_last_value - if(sequence_is_called, 0, 1) as allocated_id from measured)
select
  stream, safe_bound, allocated_id,
  case when safe_bound is not null then greatest(allocated_id - abs(safe_bound), 0) end as open_ids,
  closed_ids, replace(rule, '_', ' ') as rule,
  array_to_string(coalesce(missing_writers, []), ', ') as missing_writers
from allocated order by open_ids desc nulls first, closed_ids desc nulls last, stream
"""
_IDLE: Final = """
with latest as (
  from audit.stream_watch qualify row_number() over (partition by stream order by watched_at desc) = 1
),
writers as (select stream, watched_at, unnest(map_entries(unchanged_since)) as entry from latest)
select
  stream || ': ' || entry.key as writer, entry.value as unchanged_since,
  date_diff('second', entry.value, watched_at) / 3600.0 as hours, watched_at,
  date_diff('minute', watched_at, now()) as minutes_ago
from writers order by hours desc, writer limit 15
"""


def _draw_positions(rows: Sequence[Row]) -> alt.Chart | None:
    counts = [
        {"stream": row["stream"], "ids": row[name], "kind": kind}
        for row in rows
        for name, kind in (("closed_ids", "closed since the previous release"), ("open_ids", "open"))
        if row[name]
    ]
    return charts.draw_bars(counts, "stream", "ids", "IDs", "kind") if counts else None


_COLUMNS: Final = (
    Column("at", "Time", Format.TIME),
    Column("stream", "Stream"),
    Column("open_ids", "Open IDs", Format.NUMBER),
)


def _draw_open_ids(step: timedelta) -> Callable[[Sequence[Row]], alt.Chart | None]:
    return partial(charts.draw_lines, at="at", series="stream", value="open_ids", title="open IDs", step=step)


SECTION: Final = Section(
    "streams",
    "Streams",
    "Is a stream stuck?",
    (
        Panel(
            "stream-positions",
            "Open IDs by stream at the release",
            "Every transaction with an ID up to the safe bound has ended. Allocated IDs above the bound are open. An "
            "ID is normally open for seconds. If IDs stay open, a writer is stuck. A provisional bound is not "
            "safe: its writers were learned from the data, and another writer may have open transactions below it.",
            _POSITIONS,
            (
                Column("stream", "Stream"),
                Column("safe_bound", "Bound", Format.NUMBER),
                Column("allocated_id", "Last allocated ID", Format.NUMBER),
                Column("open_ids", "Open IDs", Format.NUMBER),
                Column("closed_ids", "Closed since the previous release", Format.NUMBER),
                Column("rule", "Basis of the bound"),
                Column("missing_writers", "Writers without a position"),
            ),
            "No run has measured streams yet.",
            _draw_positions,
        ),
        Panel(
            "streams-day",
            "Open IDs over the last day",
            "The most open IDs in 15 minutes, for the eight busiest streams.",
            _OPEN_IDS.format(span="1 day", step="15 minutes"), _COLUMNS, _NOT_WATCHED,
            _draw_open_ids(timedelta(minutes=15)),
        ),
        Panel(
            "streams-month",
            "Open IDs over the last 30 days",
            "The most open IDs in 6 hours, for the eight busiest streams.",
            _OPEN_IDS.format(span="30 days", step="6 hours"), _COLUMNS, _NOT_WATCHED,
            _draw_open_ids(timedelta(hours=6)),
        ),
        Panel(
            "idle-writers",
            "Writers by time since their position changed",
            "A writer of a quiet stream is idle for days. A writer of a busy stream is stuck if it is idle.",
            _IDLE,
            (
                Column("writer", "Stream and writer"),
                Column("unchanged_since", "Unchanged since", Format.TIME),
                Column("hours", "Duration", Format.HOURS),
            ),
            _NOT_WATCHED,
            partial(charts.draw_bars, label="writer", value="hours", title="hours without change"),
        ),
    ),
)  # fmt: skip
