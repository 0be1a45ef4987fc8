"""The picture of the report: bars, written as SVG by hand."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from bench.results import CONNECTORX, CONTENDERS, JDBC, LIMIT, OURS, Results
from bench.statistics import Spread, cost_a_row, rate

_COLOURS = {OURS: "#0b7a75", JDBC: "#d1495b", CONNECTORX: "#edae49", LIMIT: "#8d99ae"}
_PARTS = {"PostgreSQL": "#8d99ae", "ADBC": "#66a182", "Parquet": "#0b7a75", "everything else": "#c9cfd6"}
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP = 900, 190, 130, 16, 14


def draw(results: Results) -> str:
    """Two panels: rows a second of each way to copy each table, and the CPU time of our copy of a row."""
    speeds = list(_speeds(results, 64))
    height = 64 + len(results.rows) * (len(CONTENDERS) * _BAR + _GAP)
    costs = list(_costs(results, height + 64))
    total = height + 64 + len(results.rows) * (_BAR + _GAP) + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {total}" font-family="sans-serif">',
            f'<rect width="{_WIDTH}" height="{total}" fill="#ffffff"/>',
            text(20, 26, "Rows a second, full copy (median, line: smallest to largest)", size=15),
            *_legend(_COLOURS, 46),
            *speeds,
            text(20, height + 26, "CPU microseconds a row of our copy, by stage", size=15),
            *_legend(_PARTS, height + 46),
            *costs,
            "</svg>\n",
        ]
    )


def _speeds(results: Results, top: float) -> Iterator[str]:
    rates = {(way, table): rate(results.samples, way, table) for way in CONTENDERS for table in results.rows}
    scale = (_WIDTH - _LEFT - _RIGHT) / max(one.high for one in rates.values())
    for table in results.rows:
        yield text(_LEFT - 10, top + len(CONTENDERS) * _BAR / 2 + 4, table, anchor="end")
        for way in CONTENDERS:
            yield from _bar(rates[way, table], scale, top, _COLOURS[way])
            top += _BAR
        top += _GAP


def _bar(value: Spread, scale: float, top: float, colour: str) -> Iterator[str]:
    yield _box(_LEFT, top, value.median * scale, colour)
    middle = top + _BAR / 2
    yield (
        f'<line x1="{_LEFT + value.low * scale:.1f}" x2="{_LEFT + value.high * scale:.1f}" y1="{middle:.1f}" '
        f'y2="{middle:.1f}" stroke="#222222"/>'
    )
    yield text(_LEFT + value.high * scale + 6, middle + 4, f"{value.median:,.0f}")


def _costs(results: Results, top: float) -> Iterator[str]:
    costs = {table: cost_a_row(results, table) for table in results.rows}
    scale = (_WIDTH - _LEFT - _RIGHT) / max(sum(one.values()) for one in costs.values())
    for table, parts in costs.items():
        yield text(_LEFT - 10, top + _BAR / 2 + 4, table, anchor="end")
        left: float = _LEFT
        for name, value in parts.items():
            yield _box(left, top, value * scale, _PARTS[name])
            left += value * scale
        yield text(left + 6, top + _BAR / 2 + 4, f"{sum(parts.values()):.1f} µs")
        top += _BAR + _GAP


def _legend(colours: dict[str, str], top: float) -> Iterator[str]:
    left = 20.0
    for name, colour in colours.items():
        yield f'<rect x="{left:.1f}" y="{top - 10:.1f}" width="10" height="10" fill="{colour}"/>'
        yield text(left + 15, top, name)
        left += 40 + 7 * len(name)


def _box(left: float, top: float, width: float, colour: str) -> str:
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BAR - 2}" fill="{colour}"/>'


def text(left: float, top: float, said: str, anchor: str = "start", size: int = 12) -> str:
    """A line of text."""
    place = f'x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="#222222">{escape(said)}</text>'
