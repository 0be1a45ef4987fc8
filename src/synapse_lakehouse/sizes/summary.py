"""Summarize the rows of ``audit.relation_sizes``: growth and forecast of each size. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from synapse_lakehouse.postgres.relation_size import RelationSize
from synapse_lakehouse.sizes.growth import (
    Forecast,
    Growth,
    Measurements,
    estimate_growth,
    find_faster_growth,
    forecast_full_disk,
)


@dataclass(frozen=True)
class SizeRow(RelationSize):
    """A row of ``audit.relation_sizes``."""

    free_bytes: int | None
    measured_at: datetime

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "SizeRow":
        """Convert a row of the table. The row may have further columns."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})

    @property
    def label(self) -> str:
        """Kind and full name, such as ``table public.events``."""
        return f"{self.kind.replace('_', ' ')} {f'{self.schema_name}.' if self.schema_name else ''}{self.name}"


@dataclass(frozen=True)
class SizeSummary:
    """The newest row of a size, and what its history shows.

    * ``history``: rows of the last five weeks, the oldest first; the last one is the newest row.
    * ``growth``: growth in the last week if it became faster, else growth in all five weeks; None if it is unknown.
    * ``earlier_growth``: growth before it became faster; None if it did not become faster.
    * ``forecast``: only of the database and of the lake, and only if the free space is known; else None.
    """

    history: tuple[SizeRow, ...]
    growth: Growth | None
    earlier_growth: Growth | None
    forecast: Forecast | None

    @property
    def latest(self) -> SizeRow:
        """The newest row."""
        return self.history[-1]


def summarize(rows: Iterable[SizeRow]) -> list[SizeSummary]:
    """Return a summary of each size of the newest measurement, the largest first."""
    histories: dict[tuple[str, str | None, str], list[SizeRow]] = {}
    for row in sorted(rows, key=lambda row: row.measured_at):
        histories.setdefault((row.kind, row.schema_name, row.name), []).append(row)
    newest = max((history[-1].measured_at for history in histories.values()), default=None)
    present = [history for history in histories.values() if history[-1].measured_at == newest]
    database = next((history[-1].bytes for history in present if history[-1].kind == "database"), None)
    summaries = [_summarize(history, database or 0) for history in present]
    return sorted(summaries, key=lambda summary: (-(summary.latest.bytes or 0), summary.latest.label))


def _summarize(history: Sequence[SizeRow], database_bytes: int) -> SizeSummary:
    latest = history[-1]
    sizes: Measurements = [(row.measured_at, row.bytes) for row in history if row.bytes is not None]
    changed = find_faster_growth(sizes, (latest.bytes or 0) if latest.kind == "lake" else database_bytes)
    earlier, growth = changed or (None, estimate_growth(sizes))
    has_forecast = growth is not None and latest.free_bytes is not None
    forecast = forecast_full_disk(growth, latest.free_bytes) if has_forecast else None  # type: ignore[arg-type]
    return SizeSummary(tuple(history), growth, earlier, forecast)
