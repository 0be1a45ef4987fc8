"""``lakehouse sizes``: sizes of Synapse's database and of the lake, their growth and forecast."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from synapse_lakehouse.cli import output
from synapse_lakehouse.cli.lake import lake_session
from synapse_lakehouse.iceberg.read.errors import LakeReadError
from synapse_lakehouse.printable_text import format_bytes
from synapse_lakehouse.sizes import history
from synapse_lakehouse.sizes.autovacuum import find_overdue_vacuum
from synapse_lakehouse.sizes.growth import Forecast, Growth
from synapse_lakehouse.sizes.summary import SizeSummary, summarize

_MAX_RELATIONS: Final = 20
_COLUMNS: Final = (
    "kind", "schema_name", "name", "bytes", "index_bytes", "free_bytes", "live_rows", "dead_rows", "last_vacuum",
    "transaction_id_age", "growth_bytes_per_day", "growth_low", "growth_high", "growth_before", "full_in_days",
    "full_in_days_earliest", "full_in_days_latest", "vacuum_overdue", "measured_at",
)  # fmt: skip


def sizes(
    format: output.FormatOption = output.OutputFormat.TABLE,
    show_all: Annotated[
        bool, typer.Option("--all", help=f"Show all relations; default: the {_MAX_RELATIONS} largest.")
    ] = False,
) -> None:
    """Show the size and growth of each relation of Synapse's database, of the lake, and of the WAL that replication
    slots retain.

    Growth is the median slope of the last five weeks, in bytes per day, with a 95% interval. If a size grew faster in
    the last week, its growth is that of the last week. The formats csv and json contain all relations.
    """
    with lake_session.open_lake() as (settings, connection):
        summaries = summarize(history.read_rows(connection, settings))
    if not summaries:
        raise LakeReadError("No sizes have been measured yet. `make run` measures them.")
    if format is output.OutputFormat.TABLE:
        output.create_console().print(render_sizes(summaries, None if show_all else _MAX_RELATIONS))
    else:
        output.write_rows(_COLUMNS, list_rows(summaries), format)


def list_rows(summaries: list[SizeSummary]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each size, the largest first."""
    for summary in summaries:
        row = summary.latest
        growth, forecast = summary.growth, summary.forecast or Forecast(None, None, None)
        rates = (growth.bytes_per_day, growth.low, growth.high) if growth else (None,) * 3
        before = summary.earlier_growth.bytes_per_day if summary.earlier_growth else None
        yield (
            row.kind, row.schema_name, row.name, row.bytes, row.index_bytes, row.free_bytes, row.live_rows,
            row.dead_rows, row.last_vacuum, row.transaction_id_age, *rates, before, forecast.days, forecast.earliest,
            forecast.latest, find_overdue_vacuum(summary) is not None, row.measured_at,
        )  # fmt: skip


def render_sizes(summaries: list[SizeSummary], limit: int | None) -> RenderableType:
    """Return the sizes for a terminal: database, slots and lake, then at most ``limit`` relations."""
    relations = [summary for summary in summaries if summary.latest.schema_name is not None]
    disks = [summary for summary in summaries if summary.latest.schema_name is None]
    measured_at = output.format_time(summaries[0].latest.measured_at.replace(microsecond=0))
    parts: list[RenderableType] = [Text(f"Sizes, measured at {measured_at}", "bold")]
    grid = output.create_table("Disk")
    for heading in ("Size", "Free", "Growth a day", "Full in days"):
        grid.add_column(heading, justify="right")
    for summary in disks:
        row = summary.latest
        grid.add_row(
            row.label, format_bytes(row.bytes), format_bytes(row.free_bytes), format_growth(summary),
            format_forecast(summary.forecast),
        )  # fmt: skip
    parts.append(grid)
    grid = output.create_table("Relation")
    for heading in ("Size", "Indexes", "Rows", "Dead rows", "Growth a day"):
        grid.add_column(heading, justify="right")
    grid.add_column("Vacuum")
    for summary in relations[:limit]:
        row = summary.latest
        is_overdue = find_overdue_vacuum(summary) is not None
        grid.add_row(
            f"{row.schema_name}.{row.name}", "locked" if row.bytes is None else format_bytes(row.bytes),
            format_bytes(row.index_bytes), _format_count(row.live_rows), _format_count(row.dead_rows),
            format_growth(summary), Text("overdue", "yellow") if is_overdue else "",
        )  # fmt: skip
    parts.append(grid)
    if limit is not None and len(relations) > limit:
        rest = sum(summary.latest.bytes or 0 for summary in relations[limit:])
        parts.append(Text(f"{len(relations) - limit} further relations, {format_bytes(rest)} (--all)", "dim"))
    if all(summary.growth is None for summary in summaries):
        parts.append(Text("Growth is known when runs have measured the sizes over six hours or longer.", "dim"))
    return Group(*parts)


def format_growth(summary: SizeSummary) -> str:
    """Return the growth with its interval; with an arrow if it became faster."""
    growth: Growth | None = summary.growth
    if growth is None:
        return "-"
    interval = "" if growth.low is None else f" ({format_bytes(growth.low)} to {format_bytes(growth.high)})"
    return f"{format_bytes(growth.bytes_per_day)}{interval}{' ↑' if summary.earlier_growth else ''}"


def format_forecast(forecast: Forecast | None) -> str:
    """Return the days until a disk is full, with their interval; ``-`` if unknown."""
    if forecast is None:
        return "-"
    if forecast.days is None and forecast.earliest is None:
        return "never"
    days = "never" if forecast.days is None else f"{forecast.days:,.0f}"
    if forecast.earliest is None:
        return days
    latest = "never" if forecast.latest is None else f"{forecast.latest:,.0f}"
    return f"{days} ({forecast.earliest:,.0f} to {latest})"


def _format_count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
