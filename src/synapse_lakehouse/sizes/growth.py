"""Estimate how fast a size grows, and forecast when its disk is full. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, floor, inf, sqrt
from typing import Final

import numpy as np

Measurements = Sequence[tuple[datetime, int]]
"""Times and sizes in bytes, the oldest first."""

RECENT: Final = timedelta(days=7)
EARLIER: Final = timedelta(days=28)
"""Growth in the last week is compared with growth in the four weeks before."""

HORIZON_DAYS: Final = 30
"""Number of days in which faster growth must exceed the earlier growth by a tenth of the reference size."""

_MIN_SPAN: Final = timedelta(hours=6)
_MIN_FOR_INTERVAL: Final = 5
"""Minimum number of measurements for an interval. With fewer, no interval has a confidence of 95%."""
_MAX_MEASUREMENTS: Final = 100
_NORMAL_QUANTILE: Final = 1.96
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Growth:
    """Growth in bytes per day. ``low`` and ``high``: its 95% interval; None with fewer than five measurements."""

    bytes_per_day: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Forecast:
    """Days until a disk is full, at the earliest and at the latest; None means never, or unknown."""

    days: float | None
    earliest: float | None
    latest: float | None


def estimate_growth(measurements: Measurements) -> Growth | None:
    """Return the median slope of all pairs of measurements, and its interval; None if they span less than six hours.

    A single outlier, such as a VACUUM FULL in progress, changes the median little. The estimator is that of Theil, and
    the interval that of Sen (https://doi.org/10.1080/01621459.1968.10480934).
    """
    if len(measurements) < 2 or measurements[-1][0] - measurements[0][0] < _MIN_SPAN:
        return None
    count = min(len(measurements), _MAX_MEASUREMENTS)
    chosen = [measurements[index] for index in np.linspace(0, len(measurements) - 1, count).round().astype(int)]
    days = np.array([(moment - chosen[0][0]) / _DAY for moment, _ in chosen])
    sizes = np.array([size for _, size in chosen], dtype=float)
    first, second = np.triu_indices(count, 1)
    is_later = days[second] > days[first]
    first, second = first[is_later], second[is_later]
    slopes = np.sort((sizes[second] - sizes[first]) / (days[second] - days[first]))
    median = float(np.median(slopes))
    if count < _MIN_FOR_INTERVAL:
        return Growth(median)
    width = _NORMAL_QUANTILE * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(floor((len(slopes) - width) / 2) - 1, 0)
    high = min(ceil((len(slopes) + width) / 2), len(slopes) - 1)
    return Growth(median, float(slopes[low]), float(slopes[high]))


def find_faster_growth(measurements: Measurements, reference_bytes: int) -> tuple[Growth, Growth] | None:
    """Return the growth before and in the last week if it became faster, else None.

    Growth became faster if the interval of the last week is above the earlier interval, and if the difference of both
    growths in 30 days is at least a tenth of ``reference_bytes``.
    """
    if not measurements:
        return None
    since = measurements[-1][0] - RECENT
    earlier = estimate_growth([point for point in measurements if since - EARLIER <= point[0] <= since])
    recent = estimate_growth([point for point in measurements if point[0] >= since])
    if earlier is None or recent is None or earlier.high is None or recent.low is None:
        return None
    additional = (recent.bytes_per_day - earlier.bytes_per_day) * HORIZON_DAYS
    is_faster = recent.low > earlier.high and additional >= reference_bytes / 10
    return (earlier, recent) if is_faster else None


def forecast_full_disk(growth: Growth, free_bytes: int) -> Forecast:
    """Return the days until ``free_bytes`` are used at this growth, and their 95% interval."""
    free = max(free_bytes, 0)

    def days_at(bytes_per_day: float | None, never: float | None) -> float | None:
        if bytes_per_day is None:
            return None
        return free / bytes_per_day if bytes_per_day > 0 else never

    days, earliest, latest = (days_at(rate, inf) for rate in (growth.bytes_per_day, growth.high, growth.low))
    return Forecast(*(None if value == inf else value for value in (days, earliest, latest)))
