"""Estimates of growth scale with sizes and time, and recover planted growth."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import theilslopes

from synapse_lakehouse.sizes.growth import (
    Forecast,
    Growth,
    estimate_growth,
    find_faster_growth,
    forecast_full_disk,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MIB, GIB = 2**20, 2**30

sizes = st.lists(st.integers(0, 2**40), min_size=2, max_size=40)


def daily(values: list[int], start: datetime = START) -> list[tuple[datetime, int]]:
    return [(start + index * DAY, value) for index, value in enumerate(values)]


def rates(growth: Growth | None) -> list[float]:
    """Return the growth, and its interval if it has one."""
    assert growth
    return [rate for rate in (growth.bytes_per_day, growth.low, growth.high) if rate is not None]


@given(sizes, st.integers(-(2**30), 2**30), st.integers(0, 10_000))
def test_a_shift_of_sizes_or_times_changes_nothing(values: list[int], offset: int, days: int) -> None:
    expected = rates(estimate_growth(daily(values)))
    shifted = daily([value + offset for value in values], START + days * DAY)
    assert rates(estimate_growth(shifted)) == pytest.approx(expected, abs=1e-3)


@given(sizes, st.integers(1, 1000))
def test_growth_scales_with_sizes(values: list[int], factor: int) -> None:
    expected = [rate * factor for rate in rates(estimate_growth(daily(values)))]
    actual = rates(estimate_growth(daily([value * factor for value in values])))
    assert actual == pytest.approx(expected, rel=1e-6, abs=1e-3)


@given(sizes, st.integers(2, 50))
def test_growth_scales_inversely_with_time(values: list[int], factor: int) -> None:
    expected = [rate / factor for rate in rates(estimate_growth(daily(values)))]
    slower = [(START + (moment - START) * factor, size) for moment, size in daily(values)]
    assert rates(estimate_growth(slower)) == pytest.approx(expected, rel=1e-6, abs=1e-3)


@given(sizes)
def test_the_interval_contains_the_growth(values: list[int]) -> None:
    growth = estimate_growth(daily(values))
    assert growth
    assert (growth.low is None) == (growth.high is None) == (len(values) < 5)
    if growth.low is not None and growth.high is not None:
        assert growth.low <= growth.bytes_per_day <= growth.high


@given(st.lists(st.integers(0, 2**40), min_size=10, max_size=40))
def test_the_estimate_equals_that_of_scipy(values: list[int]) -> None:
    slope, _, low, high = theilslopes(values, np.arange(len(values), dtype=float))
    growth = estimate_growth(daily(values))
    assert growth
    assert growth.bytes_per_day == pytest.approx(slope, rel=1e-9)
    # The library rounds the ranks of the interval to the nearest rank, this module outwards.
    assert growth.low is not None
    assert growth.high is not None
    assert growth.low <= low <= high <= growth.high


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("per_day", [0, 3 * MIB, -2 * GIB, 40 * GIB])
def test_planted_growth_is_recovered(per_day: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    noise = random.normal(0, 0.2 * abs(per_day) + 8192, 35)
    values = [int(500 * GIB + per_day * day + noise[day]) for day in range(35)]
    # A fifth of the measurements happens during a VACUUM FULL, which doubles the size.
    for day in random.choice(35, 7, replace=False):
        values[day] *= 2
    growth = estimate_growth(daily(values))
    assert growth
    assert growth.low is not None
    assert growth.high is not None
    assert growth.low <= growth.bytes_per_day <= growth.high
    assert growth.bytes_per_day == pytest.approx(per_day, abs=0.05 * abs(per_day) + 8192)


def test_the_interval_covers_planted_growth() -> None:
    intervals_with_growth = 0
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(0, 5 * MIB, 30)
        growth = estimate_growth(daily([int(GIB + 7 * MIB * day + noise[day]) for day in range(30)]))
        assert growth
        intervals_with_growth += (growth.low or 0) <= 7 * MIB <= (growth.high or 0)
    assert intervals_with_growth >= 185


@pytest.mark.parametrize(("measurements"), [[], daily([1]), [(START, 1), (START + timedelta(hours=5), 2)]])
def test_a_short_history_has_no_growth(measurements: list[tuple[datetime, int]]) -> None:
    assert estimate_growth(measurements) is None


def test_measurements_at_one_time_are_no_slope() -> None:
    growth = estimate_growth([(START, 1), (START, 100), (START + DAY, 101)])
    assert growth == Growth(50.5)


def test_many_measurements_are_thinned_evenly() -> None:
    hourly = [(START + index * DAY / 24, index * MIB) for index in range(35 * 24)]
    assert rates(estimate_growth(hourly)) == pytest.approx([24 * MIB] * 3)


@pytest.mark.parametrize(
    ("before", "after", "is_faster"),
    [(MIB, MIB, False), (MIB, 400 * MIB, True), (400 * MIB, MIB, False), (0, 2 * MIB, False), (0, 400 * MIB, True)],
)
def test_only_faster_growth_of_a_relevant_size_is_found(before: int, after: int, is_faster: bool) -> None:
    values = [100 * GIB + before * day for day in range(29)]
    values += [values[-1] + after * day for day in range(1, 8)]
    change = find_faster_growth(daily(values), reference_bytes=100 * GIB)
    assert bool(change) is is_faster
    if change:
        assert [growth.bytes_per_day for growth in change] == pytest.approx([before, after])


@given(sizes, st.integers(1, 2**40))
def test_faster_growth_is_never_slower(values: list[int], reference: int) -> None:
    if change := find_faster_growth(daily(values), reference):
        assert change[0].bytes_per_day < change[1].bytes_per_day


def test_noise_without_a_change_is_rarely_found() -> None:
    false_alarms = 0
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(0, 300 * MIB, 35)
        values = [int(GIB + 100 * MIB * day + noise[day]) for day in range(35)]
        false_alarms += find_faster_growth(daily(values), reference_bytes=GIB) is not None
    assert false_alarms <= 4


@pytest.mark.parametrize(
    ("growth", "free", "expected"),
    [
        (Growth(10, 5, 20), 100, Forecast(10, 5, 20)),
        (Growth(10, -5, 20), 100, Forecast(10, 5, None)),
        (Growth(0, -5, 20), 100, Forecast(None, 5, None)),
        (Growth(-10, -20, -5), 100, Forecast(None, None, None)),
        (Growth(10), 100, Forecast(10, None, None)),
        (Growth(10, 5, 20), -7, Forecast(0, 0, 0)),
    ],
)
def test_a_forecast_divides_free_space_by_growth(growth: Growth, free: int, expected: Forecast) -> None:
    assert forecast_full_disk(growth, free) == expected
