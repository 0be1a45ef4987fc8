"""``lakehouse positions --gaps``: missing, late and duplicate IDs."""

from dataclasses import dataclass, fields
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release, exclude_compactions
from synapse_lakehouse.cli import output
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_literal

_OF_RELEASE: Final = "on seen.run_id = accepted.run_id and measured_at > since and measured_at <= judged_until"
_READ: Final = f"""
with accepted as (
    select *, lag(judged_until, 1, '-infinity'::timestamptz) over (partition by run_id order by release) as since
    from (values {{accepted}}) told(run_id, release, judged_until)
),
measured as (
    select stream, seen.run_id, release, max(measured_at) as measured_at
    from audit.stream_positions seen left join accepted {_OF_RELEASE} group by all
),
latest as (
    select seen.*, release from audit.stream_gaps seen left join accepted {_OF_RELEASE}
    qualify measured_at = max(measured_at) over (partition by seen.run_id, release)
)
select latest.stream, table_name, first_id, last_id, class, evidence, explanation, flags, latest.release, latest.run_id
from latest left join measured on latest.stream = measured.stream and latest.run_id = measured.run_id
    and latest.release is not distinct from measured.release
where coalesce(latest.measured_at >= measured.measured_at, true) and (
    latest.release < {{number}} and class <> 'in_flight'
    or latest.release = {{number}}
    or latest.release is null and {{is_latest}} and class in ('lost', 'late', 'duplicate', 'changed')
        and latest.measured_at > (select max(judged_until) from accepted)
)
order by class not in ('lost', 'late', 'duplicate', 'changed'), latest.release nulls first, latest.stream, first_id
"""  # noqa: S608
"""Gaps of the latest measurement of each run; a stream without gaps there has none, whatever was measured before."""


@dataclass(frozen=True)
class GapRow:
    """A row of ``audit.stream_gaps``; ``release``: the one of its run, None if that was not published."""

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
    """Gaps of ``release`` and earlier ones, and those that were in flight at it; faults first.

    :param is_latest: also return faults of later, unpublished runs.
    """
    if "audit.stream_gaps" not in list_catalog_entries(settings):
        return []
    accepted = [one for _, one in exclude_compactions(duckdb_reader.list_releases(connection, settings)[::-1])]
    shown = max(one.number for one in accepted if one.number <= release.number)
    told = (
        f"({quote_literal(one.run_id)}, {one.number}, {quote_literal(one.audited_until.isoformat())}::timestamptz)"
        for one in accepted
    )
    duckdb_reader.create_views(connection, settings, None, ["audit.stream_gaps", "audit.stream_positions"])
    sql = _READ.format(accepted=", ".join(told), number=shown, is_latest=str(is_latest).lower())
    return [GapRow(*row) for row in connection.execute(sql).fetchall()]


def write_gaps(found: list[GapRow], format: output.OutputFormat) -> None:
    """Write gaps to standard output."""
    if format is not output.OutputFormat.TABLE:
        names = ["class" if field.name == "kind" else field.name for field in fields(GapRow)]
        output.write_rows(names, (tuple(vars(one).values()) for one in found), format)
        return
    columns = ["Stream", "Ids", "Class", "Witness", "Explanation", "Release"]
    output.write_rows(columns, map(_row, found), format)


def _row(gap: GapRow) -> tuple[str, str, str, str, str, str]:
    where = gap.stream if gap.table in (None, gap.stream) else f"{gap.stream} ({gap.table})"
    ids = str(gap.first_id) if gap.first_id == gap.last_id else f"{gap.first_id} to {gap.last_id}"
    words = ", ".join(filter(None, [gap.explanation, *gap.flags])).replace("_", " ")
    release = "not published" if gap.release is None else str(gap.release)
    return where, ids, gap.kind.replace("_", " "), (gap.evidence or "none").replace("_", " "), words, release
