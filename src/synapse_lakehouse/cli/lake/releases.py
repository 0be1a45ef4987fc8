"""``lakehouse releases``: list the releases."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.printable_text import to_printable

_DAY: Final = len("2026-11-18")

_COLUMNS = (
    "release", "interval_start", "interval_end", "published_at", "tables", "checks_passed", "checks_warned", "partial",
    "run_id",
)  # fmt: skip


def releases(
    format: output.FormatOption = output.OutputFormat.TABLE,
) -> None:
    """List the releases, latest first."""
    with lake_session.open_lake() as (settings, connection):
        known = duckdb_reader.list_releases(connection, settings)
    if format is output.OutputFormat.TABLE:
        output.create_console().print(render_releases(known))
        return
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
    output.write_rows(_COLUMNS, rows, format)


def render_releases(known: Sequence[Release]) -> Table:
    """The releases as a table, for at least 80 columns."""
    table = output.create_table()
    table.add_column("Release", justify="right", no_wrap=True)
    for heading in ("From", "To", "Published"):
        table.add_column(heading, min_width=_DAY)
    for heading in ("Tables", "Passed", "Warned"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Run", overflow="fold")
    for one in known:
        moments = (one.interval_start, one.interval_end, one.published_at.replace(microsecond=0))
        run = output.format_cell(one.run_id)
        if one.partial:
            run.append("\n" + to_printable(f"partial, without {', '.join(one.partial)}"))
        table.add_row(
            str(one.number), *map(output.format_cell, moments),
            *map(str, (len(one.tables), one.checks_passed, one.checks_warned)), run,
        )  # fmt: skip
    return table
