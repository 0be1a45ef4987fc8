"""The ids that runs found missing, late or repeated, for ``lakehouse positions --gaps``."""

from dataclasses import dataclass, fields
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.cli import output
from synapse_lakehouse.lake import duck
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.settings import Settings

_READ: Final = """
with latest as (
    from audit.stream_gaps
    qualify measured_at = max(measured_at) over (partition by run_id)
),
known as (select run_id, min(release) as release from audit.releases group by run_id)
select stream, table_name, first_id, last_id, class, witness, explanation, flags, release, run_id
from latest left join known using (run_id)
where release < {number}
    and class <> 'in_flight'
    or release = (select release from known where run_id = {run})
    or release is null and {is_latest} and class in ('lost', 'late', 'duplicate', 'changed')
        and measured_at > (select max(published_at) from audit.releases)
order by class not in ('lost', 'late', 'duplicate', 'changed'), release nulls first, stream, first_id
"""


@dataclass(frozen=True)
class KnownGap:
    """A row of ``audit.stream_gaps``; ``release``: the one that accepted it, None if its run was not published."""

    stream: str
    table: str | None
    first_id: int
    last_id: int
    kind: str
    witness: str | None
    explanation: str | None
    flags: list[str]
    release: int | None
    run: str


def read(connection: DuckDBPyConnection, settings: Settings, release: Release, *, is_latest: bool) -> list[KnownGap]:
    """What ``release`` and those before it accepted, and what was open at it; faults first.

    :param is_latest: whether to have the faults of later runs, too, which were not published.
    """
    if "audit.stream_gaps" not in duck.entries(settings):
        return []
    duck.bind(connection, settings, None, ["audit.stream_gaps", "audit.releases"])
    sql = _READ.format(number=int(release.number), run=duck.literal(release.run_id), is_latest=str(is_latest).lower())
    return [KnownGap(*row) for row in connection.execute(sql).fetchall()]


def write(found: list[KnownGap], format: output.Format) -> None:
    """Gaps on standard output."""
    if format is not output.Format.TABLE:
        names = ["class" if field.name == "kind" else field.name for field in fields(KnownGap)]
        output.write(names, (tuple(vars(one).values()) for one in found), format)
        return
    columns = ["Stream", "Ids", "Class", "Witness", "Explanation", "Release"]
    output.write(columns, map(_row, found), format)


def _row(gap: KnownGap) -> tuple[str, str, str, str, str, str]:
    where = gap.stream if gap.table in (None, gap.stream) else f"{gap.stream} ({gap.table})"
    ids = str(gap.first_id) if gap.first_id == gap.last_id else f"{gap.first_id} to {gap.last_id}"
    words = ", ".join(filter(None, [gap.explanation, *gap.flags])).replace("_", " ")
    release = "not published" if gap.release is None else str(gap.release)
    return where, ids, gap.kind.replace("_", " "), (gap.witness or "none").replace("_", " "), words, release
