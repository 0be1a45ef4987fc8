"""``lakehouse releases``: what has been published."""

from typing import Annotated

import typer

from synapse_lakehouse.cli import output, reading
from synapse_lakehouse.lake import duck

_COLUMNS = (
    "release", "interval_start", "interval_end", "published_at", "tables", "checks_passed", "checks_warned", "partial",
    "run_id",
)  # fmt: skip


def releases(
    format: Annotated[output.Format, typer.Option(help="How rows are written.")] = output.Format.TABLE,
) -> None:
    """List the releases, the latest first."""
    with reading.lake() as (settings, connection):
        known = duck.releases(connection, settings)
    rows = (
        (
            one.number,
            one.interval_start,
            one.interval_end,
            one.published_at.replace(microsecond=0),
            len(one.tables),
            one.checks_passed,
            one.checks_warned,
            ", ".join(one.partial),
            one.run_id,
        )
        for one in known
    )
    output.write(_COLUMNS, rows, format)
