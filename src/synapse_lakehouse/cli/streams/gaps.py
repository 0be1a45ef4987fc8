"""``lakehouse positions --gaps``: missing, late, duplicate and changed IDs."""

from dataclasses import dataclass, fields
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release, exclude_compactions
from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_literal

_OF_RELEASE: Final = "on audited.run_id = accepted.run_id and measured_at > since and measured_at <= audited_until"
_GAPS: Final = f"""
with accepted as (
    select *, lag(audited_until, 1, '-infinity'::timestamptz) over (partition by run_id order by release) as since
    from (values {{accepted}}) releases(run_id, release, audited_until)
),
measured as (
    select stream, audited.run_id, release, max(measured_at) as measured_at
    from audit.stream_positions audited left join accepted {_OF_RELEASE} group by all
),
latest as (
    select audited.*, release from audit.stream_gaps audited left join accepted {_OF_RELEASE}
    qualify measured_at = max(measured_at) over (partition by audited.run_id, release)
)
select latest.stream, table_name, first_id, last_id, class, evidence, explanation, flags, latest.release, latest.run_id
from latest left join measured on latest.stream = measured.stream and latest.run_id = measured.run_id
    and latest.release is not distinct from measured.release
where coalesce(latest.measured_at >= measured.measured_at, true) and (
    latest.release < {{number}} and class <> 'in_flight'
    or latest.release = {{number}}
    or latest.release is null and {{is_latest}} and class in ('lost', 'late', 'duplicate', 'changed')
        and latest.measured_at > (select max(audited_until) from accepted)
)
order by class not in ('lost', 'late', 'duplicate', 'changed'), latest.release nulls first, latest.stream, first_id
"""  # noqa: S608
"""Gaps of the latest measurement of each run; gaps that only an earlier measurement of the run contains are ignored."""


@dataclass(frozen=True)
class GapRow:
    """A row of ``audit.stream_gaps``; ``release``: the release of its run, None if the run was not published."""

    stream: str
    table: str | None
    first_id: int
    last_id: int
    kind: str
    evidence: str | None
    explanation: str | None
    flags: list[str]
    release: int | None
    run: str


def read_gaps(connection: DuckDBPyConnection, settings: Settings, release: Release, *, is_latest: bool) -> list[GapRow]:
    """Return the gaps of ``release`` and earlier releases, and the IDs in flight at ``release``; faults first.

    :param is_latest: also return faults of later, unpublished runs.
    """
    if "audit.stream_gaps" not in list_catalog_entries(settings):
        return []
    releases = duckdb_reader.list_releases(connection, settings)[::-1]
    accepted = [item for _, item in exclude_compactions(releases)]
    number = max(item.number for item in accepted if item.number <= release.number)
    values = (
        f"({quote_literal(item.run_id)}, {item.number}, {quote_literal(item.accepted_at.isoformat())}::timestamptz)"
        for item in accepted
    )
    duckdb_reader.create_views(connection, settings, None, ["audit.stream_gaps", "audit.stream_positions"])
    sql = _GAPS.format(accepted=", ".join(values), number=number, is_latest=str(is_latest).lower())
    return [GapRow(*row) for row in connection.execute(sql).fetchall()]


def write_gaps(gaps: list[GapRow], format: output.OutputFormat) -> None:
    """Write gaps to standard output."""
    if format is not output.OutputFormat.TABLE:
        names = ["class" if field.name == "kind" else field.name for field in fields(GapRow)]
        output.write_rows(names, (tuple(vars(gap).values()) for gap in gaps), format)
        return
    columns = ["Stream", "IDs", "Class", "Evidence", "Explanation", "Release"]
    output.write_rows(columns, map(_table_row, gaps), format)


def _table_row(gap: GapRow) -> tuple[str, str, str, str, str, str]:
    stream = gap.stream if gap.table in (None, gap.stream) else f"{gap.stream} ({gap.table})"
    ids = str(gap.first_id) if gap.first_id == gap.last_id else f"{gap.first_id} to {gap.last_id}"
    explanation = ", ".join(filter(None, [gap.explanation, *gap.flags])).replace("_", " ")
    release = "not published" if gap.release is None else str(gap.release)
    return stream, ids, gap.kind.replace("_", " "), (gap.evidence or "none").replace("_", " "), explanation, release
