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


def releases(format: output.FormatOption = output.OutputFormat.TABLE) -> None:
    """List the releases, latest first."""
    with lake_session.open_lake() as (settings, connection):
        all_releases = duckdb_reader.list_releases(connection, settings)
    if format is output.OutputFormat.TABLE:
        output.create_console().print(render_releases(all_releases))
        return
    rows = (
        (
            release.number,
            release.interval_start,
            release.interval_end,
            release.published_at.replace(microsecond=0),
            len(release.tables),
            release.checks_passed,
            release.checks_warned,
            ", ".join(release.partial),
            release.run_id,
        )
        for release in all_releases
    )
    output.write_rows(_COLUMNS, rows, format)


def render_releases(all_releases: Sequence[Release]) -> Table:
    """Return the releases as a table, for at least 80 columns."""
    table = output.create_table()
    table.add_column("Release", justify="right", no_wrap=True)
    for heading in ("From", "To", "Published"):
        table.add_column(heading, min_width=_DAY)
    for heading in ("Tables", "Passed", "Warned"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Run", overflow="fold")
    for release in all_releases:
        times = (release.interval_start, release.interval_end, release.published_at.replace(microsecond=0))
        run = output.format_cell(release.run_id)
        if release.partial:
            run.append("\n" + to_printable(f"partial, without {', '.join(release.partial)}"))
        table.add_row(
            str(release.number), *map(output.format_cell, times),
            *map(str, (len(release.tables), release.checks_passed, release.checks_warned)), run,
        )  # fmt: skip
    return table
