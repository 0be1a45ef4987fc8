"""Output of commands: tables, CSV, JSON and lines. All commands write through this module.

Terminal control sequences and markup in values are escaped before they are printed: see :mod:`printable_text`.
"""

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from synapse_lakehouse.printable_text import to_printable, to_printable_json, to_printable_lines, to_spreadsheet_cell

MAXIMUM_TABLE_ROWS: Final = 1000
"""Maximum number of rows in the format ``table``."""

_WIDTH: Final = 120


class OutputFormat(StrEnum):
    """Output formats of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


FormatOption = Annotated[OutputFormat, typer.Option("--format", help="Output format.")]
"""The option ``--format`` of commands."""


class PrintableConsole(Console):
    """A console without markup. It escapes all control sequences except those of its own styles."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, markup=False, emoji=False, highlight=False)
        self.push_render_hook(_PrintableSegments())


class _PrintableSegments(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_PrintableRenderable(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _PrintableRenderable:
    content: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            # Segments with control codes move the cursor of a progress bar or spinner.
            yield segment if segment.control else Segment(to_printable_lines(segment.text), segment.style)


class PrintableTable(RichTable):
    """A table whose cells are single lines."""

    def add_row(self, *renderables: RenderableType | None, **options: Any) -> None:
        """Add a row."""
        super().add_row(*(format_cell(item) if isinstance(item, str) else item for item in renderables), **options)


def create_console() -> Console:
    """Return a console on standard output, as wide as the terminal; without a terminal, 120 columns."""
    fixed = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH
    return PrintableConsole(width=fixed)


def echo(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Write lines to standard output or standard error, with control sequences escaped."""
    typer.echo(to_printable_lines(text) + end, err=err, nl=False)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a progress bar on standard error; show nothing without a terminal."""
    console = PrintableConsole(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], format: OutputFormat) -> None:
    """Write ``rows`` as CSV or JSON (an array of objects), row by row, or as a table of at most 1,000 rows."""
    if format is OutputFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(to_spreadsheet_cell, columns))
        writer.writerows(
            [None if value is None else to_spreadsheet_cell(format_value(value)) for value in row] for row in rows
        )
    elif format is OutputFormat.JSON:
        _write_json(_distinct(columns), rows)
    else:
        _write_table(columns, iter(rows))


def create_table(*columns: str) -> PrintableTable:
    """Return an empty table in the style of all commands."""
    return PrintableTable(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")


def format_cell(value: object) -> Text:
    """Return ``value`` as a table cell: one line without markup; invisible characters are escaped."""
    if value is None:
        return Text("NULL", style="dim")
    plain = format_time(value) if isinstance(value, datetime) else format_value(value)
    return Text(to_printable(plain))


def format_value(value: object) -> str:
    """Return ``value`` as plain text: times in UTC by ISO 8601, nested values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(_plain(value))


def format_time(moment: datetime) -> str:
    """Return a time as text: in UTC if it has a time zone."""
    plain = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return f"{plain.isoformat(sep=' ')}{'Z' if moment.tzinfo else ''}"


def _write_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    separator = "[\n"
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        sys.stdout.write(separator + to_printable_json(json.dumps(record, default=_plain, ensure_ascii=False)))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_table(columns: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    first_rows = list(islice(rows, MAXIMUM_TABLE_ROWS))
    omitted = sum(1 for _ in rows)
    table = create_table()
    for index, name in enumerate(columns):
        numbers = all(isinstance(row[index], int | float | Decimal | None) for row in first_rows)
        table.add_column(format_cell(name), justify="right" if numbers else "left", overflow="fold")
    for row in first_rows:
        table.add_row(*map(format_cell, row))
    create_console().print(table)
    count = len(first_rows) + omitted
    note = f", the first {MAXIMUM_TABLE_ROWS} shown; --format csv or json writes all rows" if omitted else ""
    create_console().print(Text(f"{count} row{'' if count == 1 else 's'}{note}", style="dim"))


def _distinct(columns: Sequence[str]) -> list[str]:
    """Append ``_2``, ``_3`` … to repeated column names, so that no value of a JSON object is lost."""
    names: list[str] = []
    for name in columns:
        candidate, count = name, 1
        while candidate in names:
            count += 1
            candidate = f"{name}_{count}"
        names.append(candidate)
    return names


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, int | float) else str(value)
