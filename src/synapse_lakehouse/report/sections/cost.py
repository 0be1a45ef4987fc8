"""Cost: rows and seconds of the last ten runs."""

from collections.abc import Sequence
from typing import Final

import altair as alt

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section

_RUNS: Final = """
with published as (
  select min(release) as release, run_id, min(coalesce(accepted_at, published_at)) as published_at
  from audit.releases group by run_id order by release desc limit 10
),
tries as (
  select run_id, max(began_at) as began_at from audit.snapshots join published using (run_id)
  where began_at <= published_at group by run_id
),
copied as (
  select run_id, table_name, max_by(rows_read, written_at) as rows_read,
    max_by(rows_written, written_at) as rows_written, max_by(seconds, written_at) as seconds
  from audit.ledger join published using (run_id) where written_at <= published_at group by all
),
tables as (
  select run_id, sum(rows_read)::bigint as rows_read, sum(rows_written)::bigint as rows_written,
    sum(seconds) as copy_seconds
  from copied group by run_id
)
select
  release, published_at, rows_read, rows_written, copy_seconds,
  date_diff('millisecond', began_at, published_at) / 1000.0 as seconds
from published left join tries using (run_id) left join tables using (run_id) order by release
"""


def _draw_runs(rows: Sequence[Row]) -> alt.Chart:
    named = [{"release": f"release {row['release']}", "seconds": row["seconds"] or 0} for row in rows]
    return charts.draw_bars(named, "release", "seconds", "seconds from the PostgreSQL snapshot to publication")


SECTION: Final = Section(
    "cost",
    "Cost",
    "What did the last runs cost?",
    (
        Panel(
            "runs",
            "The last ten runs",
            "Duration from the PostgreSQL snapshot until publication; rows that the runs read from Synapse's database "
            "and wrote to the lake. The copy of tables runs in parallel, so its seconds may exceed the duration.",
            _RUNS,
            (
                Column("release", "Release", Format.NUMBER),
                Column("published_at", "Published", Format.TIME),
                Column("rows_read", "Rows read", Format.NUMBER),
                Column("rows_written", "Rows written", Format.NUMBER),
                Column("seconds", "Duration", Format.SECONDS),
                Column("copy_seconds", "Copy, all tables", Format.SECONDS),
            ),
            "No run has published a release yet.",
            _draw_runs,
        ),
    ),
)
