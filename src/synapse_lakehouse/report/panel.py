"""The declaration of a panel of the page: one query, its table, and its chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    from duckdb import DuckDBPyConnection

    from synapse_lakehouse.config.settings import Settings

Row = Mapping[str, Any]


class Format(StrEnum):
    """How the values of a column are written."""

    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    SECONDS = "seconds"
    HOURS = "hours"
    MILLISECONDS = "milliseconds"
    TIME = "time"
    DAY = "day"


@dataclass(frozen=True)
class Column:
    """A column of a panel's table; ``name`` is the column of the query."""

    name: str
    heading: str
    format: Format = Format.TEXT

    @property
    def is_left_aligned(self) -> bool:
        """Return whether the values are texts, times or days, and not numbers."""
        return self.format in (Format.TEXT, Format.TIME, Format.DAY)


@dataclass(frozen=True)
class Panel:
    """A panel of the page.

    * ``caption``: what the chart and the table show, in one or two sentences.
    * ``sql``: SELECT of DuckDB that `lakehouse query` can run too. It aggregates, and limits its rows.
    * ``empty``: the sentence for a query without rows.
    * ``derive``: computes the rows of the table and the chart from the query's rows; by default, returns the query's
      rows. It may read further rows from the lake.
    * ``chart``: the chart of the rows; None if a chart would show nothing, such as zeros only.
    * ``note``: a further sentence of the caption, which depends on the rows.
    * ``runbook``: the name of the runbook that says more, if there is one.
    """

    id: str
    title: str
    caption: str
    sql: str
    columns: Sequence[Column]
    empty: str
    chart: Callable[[Sequence[Row]], alt.Chart | None]
    derive: Callable[[Sequence[Row], DuckDBPyConnection, Settings], Sequence[Row]] = lambda rows, *_: rows
    note: Callable[[Sequence[Row]], str] = lambda _: ""
    runbook: str = ""


@dataclass(frozen=True)
class Section:
    """Panels that answer one question."""

    id: str
    title: str
    question: str
    panels: Sequence[Panel]


def draw_no_chart(_: Sequence[Row]) -> alt.Chart | None:
    """Return None: the chart of a panel whose rows are only listed."""
    return None
