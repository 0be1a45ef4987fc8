"""Values as text for people: numbers with separators, sizes with units, times in UTC. Untrusted text is escaped."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

from synapse_lakehouse.printable_text import format_bytes, to_printable, to_spreadsheet_cell
from synapse_lakehouse.report.panel import Format

_MAX_TEXT: Final = 120


def format_value(value: Any, format: Format) -> str:
    """Return the text of a table's cell; a dash for NULL."""
    return "-" if value is None else _FORMATS[format](value)


def format_time(value: datetime) -> str:
    """Return a time in UTC to the minute."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def shorten(text: str, length: int = _MAX_TEXT) -> str:
    """Return ``text`` on one line, without control characters, with at most ``length`` characters."""
    printable = to_printable(text)
    return printable if len(printable) <= length else printable[: length - 1] + "…"


def to_chart_value(value: Any) -> Any:
    """Return a value for the data of a chart: times as ISO 8601, text escaped and short."""
    if isinstance(value, str):
        return shorten(value, 48)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value


def _format_day(value: date) -> str:
    return f"{value:%Y-%m-%d}"


def _format_seconds(value: float) -> str:
    if abs(value) < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if abs(value) < 7200 else f"{value / 3600:.1f} h"


_FORMATS: Final[Mapping[Format, Callable[[Any], str]]] = {
    Format.TEXT: lambda value: to_spreadsheet_cell(shorten(str(value))),
    Format.NUMBER: lambda value: f"{value:,.0f}",
    Format.BYTES: format_bytes,
    Format.SECONDS: _format_seconds,
    Format.HOURS: lambda value: f"{value:,.1f} h" if value < 72 else f"{value / 24:,.1f} days",
    Format.MILLISECONDS: lambda value: f"{value:,.0f} ms" if abs(value) < 1000 else _format_seconds(value / 1000),
    Format.TIME: format_time,
    Format.DAY: _format_day,
}
