"""Cost: rows, seconds and CPU seconds of the last ten runs, and of the tasks of the last run."""

from collections.abc import Sequence
from typing import Final

import altair as alt

from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section

_RUNS: Final = """
with published as (
  select min(release) as release, run_id, min(accepted_at) as published_at
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
),
tasks as (
  select run_id, task, max_by(cpu_seconds, written_at) as cpu_seconds
  from audit.task_costs join published using (run_id) group by run_id, task
),
processors as (select run_id, sum(cpu_seconds) as cpu_seconds from tasks group by run_id)
select
  release, published_at, rows_read, rows_written, copy_seconds, cpu_seconds,
  date_diff('millisecond', began_at, published_at) / 1000.0 as seconds
from published left join tries using (run_id) left join tables using (run_id) left join processors using (run_id)
order by release
"""
_TASKS: Final = """
with latest as (select run_id from audit.releases order by release desc limit 1)
select task, max_by(seconds, written_at) as seconds, max_by(cpu_seconds, written_at) as cpu_seconds,
  max(written_at) as ended_at
from audit.task_costs join latest using (run_id) group by task order by ended_at, task
"""


def _draw_runs(rows: Sequence[Row]) -> alt.Chart:
    return _draw_seconds([{**row, "run": f"release {row['release']}"} for row in rows], "run")


def _draw_tasks(rows: Sequence[Row]) -> alt.Chart:
    return _draw_seconds(rows, "task")


def _draw_seconds(rows: Sequence[Row], label: str) -> alt.Chart:
    bars = [
        {label: row[label], "seconds": row[column] or 0, "measure": measure}
        for row in rows
        for column, measure in (("seconds", "duration"), ("cpu_seconds", "CPU"))
    ]
    return charts.draw_bars(bars, label, "seconds", "seconds", "measure", Format.SECONDS)


SECTION: Final = Section(
    "cost",
    "Cost",
    "What did the last runs cost?",
    (
        Panel(
            "runs",
            "The last ten runs",
            "Duration from the PostgreSQL snapshot until publication, CPU time of the tasks, and rows that the run "
            "read from Synapse's database and copied. “Copy, all tables” adds the times of tables that are copied in "
            "parallel.",
            _RUNS,
            (
                Column("release", "Release", Format.NUMBER),
                Column("published_at", "Published", Format.TIME),
                Column("rows_read", "Rows read", Format.NUMBER),
                Column("rows_written", "Rows copied", Format.NUMBER),
                Column("seconds", "Duration", Format.SECONDS),
                Column("cpu_seconds", "CPU", Format.SECONDS),
                Column("copy_seconds", "Copy, all tables", Format.SECONDS),
            ),
            "No run has published a release yet.",
            _draw_runs,
        ),
        Panel(
            "task-costs",
            "The tasks of the last run",
            "Duration and CPU seconds of each task on the machine of the Spark driver, without the start of its "
            "processes. Executors on other machines and PostgreSQL are not counted.",
            _TASKS,
            (
                Column("task", "Task"),
                Column("seconds", "Duration", Format.SECONDS),
                Column("cpu_seconds", "CPU", Format.SECONDS),
                Column("ended_at", "End", Format.TIME),
            ),
            "The last run did not record the costs of its tasks.",
            _draw_tasks,
        ),
    ),
)
