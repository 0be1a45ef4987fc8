"""Rows on standard output, for people or for programs."""

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

SHOWN: Final = 1000
"""Most rows of a table for people."""

_WIDTH: Final = 120


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


Option = Annotated[Format, typer.Option("--format", help="How rows are written.")]
"""As commands take it."""


def console() -> Console:
    """Standard output for people: as wide as the terminal, 120 columns if it is not one."""
    fixed = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(width=fixed, highlight=False)


@contextmanager
def bar() -> Iterator[Progress]:
    """How far something is, on standard error, where somebody watches."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def write(columns: Sequence[str], rows: Iterable[Sequence[Any]], format: Format) -> None:
    """Write ``rows``; CSV and JSON (an array of objects) row by row, a table up to its first thousand."""
    if format is Format.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([None if value is None else text(value) for value in row] for row in rows)
    elif format is Format.JSON:
        _write_json(_distinct(columns), rows)
    else:
        _write_table(columns, iter(rows))


def table(*columns: str) -> Table:
    """An empty table in the style of all tables here."""
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")


def cell(value: object) -> Text:
    """``value`` for a table: never markup, and control characters (a sender may have put them in) made visible."""
    if value is None:
        return Text("NULL", style="dim")
    plain = when(value) if isinstance(value, datetime) else text(value)
    return Text("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in plain))


def text(value: object) -> str:
    """``value`` as plain text: times in UTC by ISO 8601, nested values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(_plain(value))


def when(moment: datetime) -> str:
    """A time for people: in UTC if it has a time zone."""
    plain = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return f"{plain.isoformat(sep=' ')}{'Z' if moment.tzinfo else ''}"


def _write_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    separator = "[\n"
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        sys.stdout.write(separator + json.dumps(record, default=_plain, ensure_ascii=False))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_table(columns: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    shown = list(islice(rows, SHOWN))
    rest = sum(1 for _ in rows)
    drawn = table()
    for index, name in enumerate(columns):
        numbers = all(isinstance(row[index], int | float | Decimal | None) for row in shown)
        drawn.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for row in shown:
        drawn.add_row(*map(cell, row))
    console().print(drawn)
    count = len(shown) + rest
    note = f", the first {SHOWN} shown; --format csv or json writes all" if rest else ""
    console().print(Text(f"{count} row{'' if count == 1 else 's'}{note}", style="dim"))


def _distinct(columns: Sequence[str]) -> list[str]:
    """Column names with ``_2``, ``_3`` … appended where one repeats, so that no value of a JSON object is lost."""
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
