"""``lakehouse summary``: summary of a release, also printed at the end of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duckdb import DuckDBPyConnection
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.cli.streams import positions
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.printable_text import format_bytes, to_printable
from synapse_lakehouse.report.page_location import get_page_path

_ROWS: Final = ("rows_source", "rows_read", "rows_written")

EXAMPLES: Final = (
    "select type, count(*) as events from gold.events group by type order by events desc limit 10",
    "select distinct room_id, room_name, joined_members from gold.current_rooms order by joined_members desc limit 10",
    "select stage, severity, success, count(*) as checks from audit.checks group by all",
)


@dataclass(frozen=True)
class CopiedTable:
    """A row of the ledger: how the run read a table, the rows that it wrote, and the bytes of Parquet."""

    table: str
    extent: str
    rows_source: int | None
    rows_read: int | None
    rows_written: int | None
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True)
class CheckWarning:
    """A failed check that did not block the release."""

    subject: str
    expectation: str
    observed: str


@dataclass(frozen=True)
class TapSummary:
    """Tokens that the tap of a dialect received since the previous run, compared with the copied rows."""

    dialect: str
    writers: int
    tokens_received: int
    tokens_read: int
    unexplained: int


@dataclass(frozen=True)
class ReleaseSummary:
    """A release and its run."""

    release: Release
    tables: Sequence[CopiedTable]
    positions: Sequence[positions.StreamPosition]
    warnings: Sequence[CheckWarning]
    taps: Sequence[TapSummary]
    home: Path


def summary(release: lake_session.ReleaseOption = None) -> None:
    """Summarize a release: interval, rows and bytes by table, stream positions, checks, and where to find more."""
    with lake_session.open_lake() as (settings, connection):
        content = read_summary(connection, settings, duckdb_reader.get_release(connection, settings, release))
    output.create_console().print(render_summary(content))


def read_summary(connection: DuckDBPyConnection, settings: Settings, release: Release) -> ReleaseSummary:
    """Read the summary of ``release``."""
    tables = ["audit.ledger", "audit.releases", "audit.checks", "audit.replication_coverage"]
    duckdb_reader.create_views(connection, settings, None, tables)
    duckdb_reader.set_release_variables(connection, release)
    ledger = connection.execute(
        "select table_name, extent, rows_source, rows_read, rows_written, bytes, seconds"
        " from audit.ledger join (select run_id, tables from audit.releases where release = getvariable('release'))"
        " using (run_id) where snapshot_id = tables['bronze.' || table_name]"
        " qualify row_number() over (partition by table_name order by written_at desc) = 1"
        " order by bytes desc nulls last, rows_source desc nulls last, table_name"
    ).fetchall()
    warnings = connection.execute(
        "with last as (from audit.checks"
        " where run_id = getvariable('run') and checked_at <= getvariable('audited_until')"
        " qualify rank() over (partition by stage order by checked_at desc) = 1)"
        " select distinct subject, expectation, observed from last where not success order by all"
    ).fetchall()
    return ReleaseSummary(
        release,
        [CopiedTable(*row) for row in ledger],
        positions.read_positions(connection, settings, release),
        [CheckWarning(*row) for row in warnings],
        _read_taps(connection),
        settings.lakehouse_home,
    )


def _read_taps(connection: DuckDBPyConnection) -> list[TapSummary]:
    rows = connection.execute(
        "with last as (from audit.replication_coverage"
        " where run_id = getvariable('run') and measured_at <= getvariable('audited_until')"
        " qualify row_number() over (partition by dialect, stream, instance order by measured_at desc) = 1)"
        " select dialect, count(distinct instance), sum(tokens_received), sum(tokens_read), sum(unexplained) from last"
        " group by dialect order by dialect"
    ).fetchall()
    return [TapSummary(*row) for row in rows]


def render_summary(content: ReleaseSummary) -> RenderableType:
    """Render the summary for at least 80 columns."""
    release = content.release
    return Group(
        Text.assemble(
            (f"Release {release.number}", "bold green"),
            f" published at {output.format_time(release.published_at.replace(microsecond=0))}",
        ),
        Text(f"Interval {output.format_time(release.interval_start)} to {output.format_time(release.interval_end)}"),
        Text(f"Server   {to_printable(release.server_name)}"),
        Text(f"Run      {to_printable(release.run_id)}"),
        *(
            [Text(to_printable(f"Partial  not copied, unchanged: {', '.join(release.partial)}"), "yellow")]
            * bool(release.partial)
        ),
        *_section("Tables", _render_tables(content.tables)),
        *_section("Stream positions", _render_positions(content.positions)),
        *(_section("Replication", *map(_render_tap, content.taps)) if content.taps else ()),
        *_section("Checks", _render_checks(content)),
        *_section("Where to look", _render_places(content)),
    )


def _section(title: str, *parts: RenderableType) -> list[RenderableType]:
    return [Text(), Text(title, style="bold"), *(Padding(part, (0, 0, 0, 2), expand=False) for part in parts)]


def _render_tables(copied: Sequence[CopiedTable]) -> RenderableType:
    filled = [table for table in copied if table.rows_source or table.rows_read or table.rows_written]
    empty = sorted(table.table for table in copied if table not in filled)
    grid = output.create_table("Table", "Copied")
    for heading in ("In source", "Read", "Written", "Bytes", "Seconds"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for table in filled:
        grid.add_row(
            table.table, table.extent, *(_format_count(getattr(table, name)) for name in _ROWS),
            format_bytes(table.bytes), "-" if table.seconds is None else f"{table.seconds:.1f}",
        )  # fmt: skip
    grid.add_section()
    grid.add_row(
        f"{len(copied)} tables", "",
        *(_format_count(sum(getattr(table, name) or 0 for table in copied)) for name in _ROWS),
        format_bytes(sum(table.bytes or 0 for table in copied)), "",
        style="bold",
    )  # fmt: skip
    if not empty:
        return grid
    return Group(grid, Text(to_printable(f"{len(empty)} without rows: {', '.join(empty)}"), style="dim"))


def _render_positions(stream_positions: Sequence[positions.StreamPosition]) -> Table:
    table = output.create_table("Stream")
    for heading in ("Bound", "Before", "Lag"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Rule")
    for position in stream_positions:
        rule = position.rule.replace("_", " ")
        missing = f": {', '.join(position.missing_writers)}" if position.missing_writers else ""
        counts = map(_format_count, (position.bound, position.previous, position.lag))
        table.add_row(position.stream, *counts, rule + missing)
    return table


def _render_tap(tap: TapSummary) -> Text:
    return Text.assemble(
        f"{to_printable(tap.dialect)}: {tap.tokens_received:,} tokens of {tap.writers:,} writers received, ",
        f"{tap.tokens_read:,} read from the database, ",
        (f"{tap.unexplained:,} missing without an explanation", "yellow" if tap.unexplained else "green"),
    )


def _render_checks(content: ReleaseSummary) -> Text:
    passed, warned = content.release.checks_passed, content.release.checks_warned
    text = Text.assemble(
        (f"{passed:,} passed", "green"), ", ", (f"{warned:,} warned", "yellow" if warned else ""), ", 0 failed"
    )
    for warning in content.warnings:
        line = to_printable(f"warned: {warning.subject}: {warning.expectation} ({warning.observed})")
        text.append(f"\n{line}", style="yellow")
    return text


def _render_places(content: ReleaseSummary) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    if (page := get_page_path(content.home)).exists():
        table.add_row("Page", page.as_uri())
    table.add_row("Data Docs", (content.home / "data_docs" / "index.html").as_uri())
    table.add_row("Airflow", "make ui")
    for number, sql in enumerate(EXAMPLES):
        table.add_row("" if number else "SQL", f'uv run lakehouse query "{sql}"')
    return table


def _format_count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
