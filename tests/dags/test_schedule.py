"""Intervals of the schedule equal Airflow's. Each moment is in one interval, even on days of 23 or 25 hours."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from synapse_lakehouse.config.schedule import Schedule, ScheduleError, check_expression
from synapse_lakehouse.config.settings import Settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"]
EXPRESSIONS = [
    "0 0 * * *",
    "@hourly",
    "30 * * * *",
    "0 */6 * * *",
    "15 4 * * 1",
    "0 5 * * 1-5",
    "30 23 1 * *",
    "@daily",
]
CLOCK_CHANGES = [(datetime(2026, 3, 6, tzinfo=UTC), 32), (datetime(2026, 10, 2, tzinfo=UTC), 32)]
"""Start and number of days of the periods in which the clocks of all these zones change."""
MOMENTS = st.integers(0, 2 * 365 * 86_400).map(lambda seconds: NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize("expression", EXPRESSIONS)
@given(zone=st.sampled_from(ZONES), moment=MOMENTS)
def test_intervals_equal_those_of_airflow(dags: object, expression: str, zone: str, moment: datetime) -> None:
    import pendulum
    from airflow.timetables.interval import CronDataIntervalTimetable

    schedule = Schedule(expression, zone)
    timetable = CronDataIntervalTimetable(expression, timezone=schedule.zone.key)
    start, end = schedule.find_previous_interval(moment)
    inferred = timetable.infer_manual_data_interval(run_after=pendulum.instance(moment))
    assert (inferred.start, inferred.end) == (start, end)


@pytest.mark.parametrize(
    ("expression", "zone", "lengths"),
    [
        ("0 0 * * *", "Europe/Berlin", {23, 24, 25}),
        ("0 0 * * *", "America/New_York", {23, 24, 25}),
        ("@hourly", "Europe/Berlin", {1}),
        ("@hourly", "Australia/Lord_Howe", {1}),
        ("0 */6 * * *", "Europe/Berlin", {5, 6, 7}),
    ],
)
def test_each_moment_is_in_one_interval(expression: str, zone: str, lengths: set[int]) -> None:
    schedule, interval_hours = Schedule(expression, zone), set()
    for begin, days in CLOCK_CHANGES:
        start, end = schedule.find_interval(begin)
        while end < begin + timedelta(days=days):
            next_start, next_end = schedule.find_interval(end)
            assert next_start == end
            assert schedule.find_interval(end - timedelta(seconds=1)) == (start, end)
            interval_hours.add((end - start) / timedelta(hours=1))
            start, end = next_start, next_end
    assert interval_hours == lengths


@pytest.mark.parametrize(("expression", "zone"), [("30 2 * * *", "Europe/Berlin"), ("0 2 * * *", "America/New_York")])
def test_a_time_that_clocks_skip_is_refused(expression: str, zone: str) -> None:
    with pytest.raises(ScheduleError):
        Schedule(expression, zone).require_existing_times(NOW)


@pytest.mark.parametrize(
    ("expression", "zone"), [("0 3 * * *", "Europe/Berlin"), ("30 2 * * *", "UTC"), ("@hourly", "Europe/Berlin")]
)
def test_a_time_that_always_exists_is_accepted(expression: str, zone: str) -> None:
    Schedule(expression, zone).require_existing_times(NOW)


@pytest.mark.parametrize(
    "expression", ["", "soon", "0 0 * *", "* * * * * *", "61 * * * *", "@once", "H * * * *", "0 0 31 2"]
)
def test_invalid_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ScheduleError):
        check_expression(expression)


def test_a_release_is_overdue_after_the_longest_interval() -> None:
    assert Schedule("@hourly", "UTC").overdue_after(NOW) == timedelta(hours=3)
    assert Schedule("0 5 * * 1-5", "UTC").overdue_after(NOW) == timedelta(hours=74)


@pytest.mark.parametrize(
    "values",
    [
        {"lakehouse_timezone": "Mars/Olympus"},
        {"lakehouse_schedule": "30 2 * * *", "lakehouse_timezone": "Europe/Berlin"},
    ],
)
def test_settings_refuse_a_schedule_that_cannot_work(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Settings(_env_file=None, **values)


def test_two_runs_of_an_interval_have_different_logical_dates() -> None:
    schedule, minute = Schedule("@hourly", "UTC"), timedelta(minutes=1)
    start, end = schedule.find_interval(NOW)
    dates = {schedule.choose_logical_date(end, NOW + number * minute) for number in range(60)}
    assert len(dates) == 60
    assert {schedule.find_previous_interval(date) for date in dates} == {(start, end)}
