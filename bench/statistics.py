"""Medians, ranges, ratios and slopes of repeated measurements."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np


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
    """Fit y = c * x^slope by least squares, and return the slope; 1 is linear growth, 0 stands for a single point."""
    if len(points) < 2:
        return 0.0
    x, y = np.log(np.array(points, float).T)
    return float(np.polyfit(x, y, 1)[0])
