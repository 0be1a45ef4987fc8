"""What work costs against how much there is: a picture of lines, written as SVG by hand, both axes in powers of ten."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from bench.picture import text

_COLOURS: Final = ("#0b7a75", "#d1495b")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 420, 70, 230, 50, 50

Line = Sequence[tuple[int, float]]


def draw(lines: Mapping[str, Line]) -> str:
    """Lines through events and seconds; beside each its slope: 1 is as many times the seconds as times the events."""
    xs = [math.log10(events) for line in lines.values() for events, _ in line]
    ys = [math.log10(seconds) for line in lines.values() for _, seconds in line]
    across, up = _range(xs), _range(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return (
            _LEFT + (x - across[0]) / (across[1] - across[0]) * wide,
            _HEIGHT - _BOTTOM - (y - up[0]) / (up[1] - up[0]) * high,
        )

    def grid() -> Iterator[str]:
        for power in range(across[0], across[1] + 1):
            (left, bottom), (_, top) = place(power, up[0]), place(power, up[1])
            yield f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{bottom:.1f}" y2="{top:.1f}" stroke="#dddddd"/>'
            yield text(left, bottom + 20, f"{10**power:,}", anchor="middle")
        for power in range(up[0], up[1] + 1):
            (left, bottom), (right, _) = place(across[0], power), place(across[1], power)
            yield f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}" stroke="#dddddd"/>'
            yield text(left - 8, bottom + 4, f"{10**power:g}", anchor="end")

    def drawn() -> Iterator[str]:
        for (name, line), colour in zip(lines.items(), _COLOURS, strict=False):
            places = [place(math.log10(events), math.log10(seconds)) for events, seconds in line]
            points = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            yield from (f'<circle cx="{left:.1f}" cy="{top:.1f}" r="4" fill="{colour}"/>' for left, top in places)
            left, top = places[-1]
            yield text(left + 10, top + 4, f"{name}: slope {round(slope(line), 2) + 0.0:.2f}")

    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
            text(20, 26, "Seconds for state and visibility against events of the server", size=15),
            *grid(),
            *drawn(),
            "</svg>\n",
        ]
    )


def slope(line: Line) -> float:
    """The power of the number of events that the seconds grow with, by least squares; 0 of a single point."""
    if len(line) < 2:
        return 0.0
    events, seconds = np.log(np.array(line, float).T)
    return float(np.polyfit(events, seconds, 1)[0])


def _range(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(min(values)), math.ceil(max(values))
    return low, max(high, low + 1)
