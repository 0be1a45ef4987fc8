"""Medians, ranges, ratios and slopes of repeated measurements."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import linear_regression, median


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest value of a repeated measurement."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of at least one value."""
    return Spread(median(values), min(values), max(values))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Return the spread of the quotients, one for each round."""
    return spread([above / below for above, below in zip(numerators, denominators, strict=True)])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Fit y = c * x^slope by least squares, and return the slope: 1 for linear growth, 0 for a single point."""
    if len(points) < 2:
        return 0.0
    return linear_regression([log(x) for x, _ in points], [log(y) for _, y in points]).slope
