"""Integrity: findings of the latest release, and findings per day."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import altair as alt

from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.report import charts
from synapse_lakehouse.report.panel import Column, Format, Panel, Row, Section, draw_no_chart
from synapse_lakehouse.room_state.integrity_checks import WORST_FIRST

_FINDINGS: Final = f"""
select check_name, severity, count(*) as findings, count(distinct room_id) as rooms
from gold.state_integrity group by check_name, severity
order by list_position(['fail', 'warn', 'info'], severity),
  list_position({[check.name for check in WORST_FIRST]}, check_name) limit 40
"""  # noqa: S608 - names of checks
_INDEXES: Final = """
with latest as (
  from audit.index_checks qualify row_number() over (partition by index_name order by written_at desc) = 1
)
select table_name, count(*) as indexes, count(finished_at) as compared, min(finished_at) as oldest_pass,
  sum(faults)::bigint as faults, any_value(not_checked) as reason
from latest group by table_name order by indexes - compared desc, oldest_pass, table_name limit 100
"""
_PER_DAY: Final = """
with counted as (
  select releases.published_at, integrity.* from audit.integrity join audit.releases using (run_id)
  where counted_at <= accepted_at
  qualify row_number() over (partition by run_id, check_name order by counted_at desc) = 1
),
runs as (
  select cast(published_at as date) as day, run_id, published_at, sum(serious)::bigint as serious,
    sum(new_findings)::bigint as new_findings
  from counted group by all
),
daily as (
  select day, max_by(serious, published_at) as serious, sum(new_findings)::bigint as new_findings from runs group by day
)
select day, serious, new_findings from daily order by day desc limit 60
"""


def _draw_findings(rows: Sequence[Row]) -> alt.Chart | None:
    named = [{**row, "severity": charts.SEVERITIES[row["severity"]]} for row in rows]
    return charts.draw_bars(named, "check_name", "findings", "findings", "severity") if named else None


def _draw_days(rows: Sequence[Row]) -> alt.Chart | None:
    counts = [
        {"day": row["day"], "kind": kind, "findings": row[name] or 0}
        for row in rows
        for name, kind in (("serious", "open"), ("new_findings", "new"))
    ]
    return (
        charts.draw_lines(counts, "day", "kind", "findings", "findings", timedelta(days=1))
        if any(c["findings"] for c in counts)
        else None
    )


SECTION: Final = Section(
    "integrity",
    "Integrity",
    "Is anything damaged?",
    (
        Panel(
            "findings",
            "Findings in Synapse's database by check",
            "fail: Synapse cannot answer, or answers wrongly. warn: an operator should examine the finding. info: "
            "healthy databases have such findings too.",
            _FINDINGS,
            (
                Column("check_name", "Check"),
                Column("severity", "Severity"),
                Column("findings", "Findings", Format.NUMBER),
                Column("rooms", "Rooms", Format.NUMBER),
            ),
            "Nothing is damaged: no check has a finding.",
            _draw_findings,
            runbook=IncidentKind.INTEGRITY,
        ),
        Panel(
            "findings-by-day",
            "Findings of severity fail or warn per day",
            "Open findings at the last release of the day, and new findings of all releases of the day.",
            _PER_DAY,
            (
                Column("day", "Day", Format.DAY),
                Column("serious", "Open", Format.NUMBER),
                Column("new_findings", "New", Format.NUMBER),
            ),
            "No run has counted findings yet.",
            _draw_days,
        ),
        Panel(
            "index-checks",
            "Comparison of index entries with the copy",
            "The DAG lake_maintenance compares the entries of each index with the copied rows, over several nights if "
            "necessary. `uv run lakehouse doctor --deep --indexes TABLE` compares the indexes of one table now.",
            _INDEXES,
            (
                Column("table_name", "Table"),
                Column("indexes", "Indexes", Format.NUMBER),
                Column("compared", "Compared completely", Format.NUMBER),
                Column("oldest_pass", "Oldest comparison", Format.TIME),
                Column("faults", "Faults of the last run", Format.NUMBER),
                Column("reason", "Why not"),
            ),
            "No index was compared yet. The DAG lake_maintenance does so every night while Airflow (`make ui`) runs.",
            draw_no_chart,
        ),
    ),
)
