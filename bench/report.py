"""Write measurements as Markdown tables to ``docs/bench*.md``, and print them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.statistics import Spread
from synapse_lakehouse.config.settings import PROJECT_FOLDER

DOCS: Final = PROJECT_FOLDER / "docs"
MARKER: Final = "<!-- The benchmark replaces everything below this line. -->"

Cell = str | int | float | Spread | None
Folder = Annotated[Path, typer.Option(help="folder of the page with the results")]


@dataclass(frozen=True)
class Table:
    """A heading, the names of the columns, and the rows."""

    heading: str
    columns: Sequence[str]
    rows: Iterable[Sequence[Cell]]


def write_page(name: str, folder: Path, *tables: Table) -> None:
    """Print the tables, and write them to the page ``name`` in ``folder`` below the introduction.

    The introduction is the text above :data:`MARKER` in the page of ``docs/``. It is edited by hand.
    """
    introduction = (DOCS / name).read_text(encoding="utf-8").partition(MARKER)[0]
    results = "\n\n".join(map(format_table, tables))
    (folder / name).write_text(f"{introduction}{MARKER}\n\n{results}\n", encoding="utf-8")
    typer.echo(f"{results}\n\nWritten to {folder / name}")


def format_table(table: Table) -> str:
    """Return the table as Markdown, below its heading."""
    lines = [table.columns, ["---"] * len(table.columns), *(map(format_cell, row) for row in table.rows)]
    return "\n".join([f"## {table.heading}\n", *(f"| {' | '.join(line)} |" for line in lines)])


def format_cell(value: Cell) -> str:
    """Return a value as text: a spread with its range, and decimals only below 1,000."""
    match value:
        case None:
            return ""
        case Spread():
            return f"{format_cell(value.median)} ({format_cell(value.low)} to {format_cell(value.high)})"
        case float() if abs(value) < 1000:
            return f"{value:.2f}"
        case int() | float():
            return f"{value:,.0f}"
        case _:
            return value
