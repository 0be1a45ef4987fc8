"""``lakehouse diff``: rows, rooms, users and findings that differ between two releases."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.report.release_diff import MAX_ROWS, ReleaseDiff, read_release_diff

_COLUMNS: Final = (
    "kind", "name", "rows_before", "rows_after", "added", "changed", "removed", "bytes_before", "bytes_after", "note",
)  # fmt: skip


def diff(
    before: Annotated[
        int | None, typer.Argument(min=1, help="Earlier release; default: the release before AFTER.")
    ] = None,
    after: Annotated[int | None, typer.Argument(min=1, help="Later release; default: the latest.")] = None,
    format: output.FormatOption = output.OutputFormat.TABLE,
    compare_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Compare all tables. Default: compare the smallest tables first, up to "
            f"{MAX_ROWS:,} rows in files that differ; show only row counts of the others.",
        ),
    ] = False,
) -> None:
    """Compare two releases: rows added, changed and removed by table, new rooms and users, findings, growth.

    The command compares neither views nor tables without branches. Such tables belong to no release: the audit tables,
    bronze.replication_commands and gold.compression_plan. The command cannot show rows that were added and removed
    again between the releases, nor the order in which rows changed.
    """
    with lake_session.open_lake() as (settings, connection):
        content = read_release_diff(connection, settings, (before, after), None if compare_all else MAX_ROWS)
    if format is output.OutputFormat.TABLE:
        output.create_console().print(render_diff(content))
    else:
        output.write_rows(_COLUMNS, list_rows(content), format)


def list_rows(content: ReleaseDiff) -> Iterator[tuple[Any, ...]]:
    """Yield the difference as rows: tables with their rows, rooms with their events, users, checks with findings."""
    for table in content.tables:
        yield (
            "table", table.table, table.rows_before, table.rows_after, table.added, table.changed, table.removed,
            table.bytes_before, table.bytes_after, table.note,
        )  # fmt: skip
    nothing = (None,) * 2
    for room in content.rooms:
        kind, added = "new room" if room.before is None else "room", room.after - (room.before or 0)
        yield (kind, room.room_id, room.before, room.after, added, *nothing, *nothing, "")
    for user in content.users:
        yield ("new user", user, *nothing, *nothing, *nothing, None, "")
    for finding in content.findings:
        yield ("finding", finding.check, *nothing, finding.new, None, finding.resolved, *nothing, finding.severity)


def render_diff(content: ReleaseDiff) -> RenderableType:
    """Return the difference for a terminal of 80 columns or more."""
    before, after = content.before, content.after
    published = (output.format_time(release.published_at.replace(microsecond=0)) for release in (before, after))
    changed = [table for table in content.tables if not table.is_unchanged]
    parts: list[RenderableType] = [
        Text(f"Release {before.number} ({next(published)}) to release {after.number} ({next(published)})", "bold")
    ]
    if changed:
        grid = _grid("Table", "Rows", "Added", "Changed", "Removed", "Bytes")
        for table in changed:
            grid.add_row(
                table.table, *map(_format, (table.rows_after, table.added, table.changed, table.removed)),
                _format_change((table.bytes_after or 0) - (table.bytes_before or 0)),
            )  # fmt: skip
        parts.append(grid)
    parts.append(Text(f"{len(content.tables) - len(changed)} tables have the same rows.", "dim"))
    parts += [Text(f"{table.table}: {table.note}", "yellow") for table in changed if table.note]
    if content.rooms:
        grid = _grid(f"Room ({content.new_rooms:,} new)", "Events", "Added")
        for room in content.rooms:
            mark = " (new)" if room.before is None else ""
            grid.add_row(room.room_id + mark, _format(room.after), _format(room.after - (room.before or 0)))
        parts.append(grid)
    if content.new_users:
        parts += [Text(f"{content.new_users:,} new users"), *(Text(f"  {user}") for user in content.users)]
    if content.findings:
        grid = _grid("Check", "Severity", "New", "Resolved")
        for finding in content.findings:
            grid.add_row(finding.check, finding.severity, _format(finding.new), _format(finding.resolved))
        parts.append(grid)
    return Group(*parts)


def _grid(*headings: str) -> Table:
    table = output.create_table()
    table.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _format(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _format_change(value: int) -> str:
    return f"{value:+,}" if value else "0"
