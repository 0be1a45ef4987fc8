"""The schedule of the DAG ``lakehouse``: a cron expression in a time zone, and the data intervals between its times."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from synapse_lakehouse.errors import LakehouseError

PRESETS: Final = ("@hourly", "@daily", "@weekly", "@monthly")
_SLACK: Final = timedelta(hours=2)
_INTERVALS: Final = 60
"""Number of consecutive intervals that include the longest one: workdays repeat after 5 intervals, months after 12."""


class ScheduleError(LakehouseError, ValueError):
    """The schedule is not usable; the message is the rest of a sentence that begins with the setting's name."""


@dataclass(frozen=True)
class Schedule:
    """The times of runs, in local time of ``timezone``. A schedule with times in every hour uses UTC instead.

    In UTC, no hour is repeated. If the clocks go back, Airflow uses the second of two equal local times.
    """

    expression: str
    timezone: str

    @cached_property
    def zone(self) -> ZoneInfo:
        """The time zone of the intervals."""
        return ZoneInfo("UTC" if croniter(self.expression).expanded[1] == ["*"] else self.timezone)

    def find_interval(self, moment: datetime) -> tuple[datetime, datetime]:
        """Return start and end, in UTC, of the data interval that contains ``moment``."""
        local = moment.astimezone(self.zone).replace(tzinfo=None)
        at = croniter(self.expression, local + timedelta(microseconds=1))
        start = self._to_utc(at.get_prev(datetime))
        end = self._to_utc(at.get_next(datetime))
        return start, end

    def find_previous_interval(self, moment: datetime) -> tuple[datetime, datetime]:
        """Return start and end of the last data interval that is complete at ``moment``."""
        end, _ = self.find_interval(moment)
        return self.find_interval(end - timedelta(microseconds=1))

    def choose_logical_date(self, end: datetime, now: datetime) -> datetime:
        """Return a logical date for a run of the interval that ends at ``end``.

        Airflow infers this interval from any time in the next interval. Two runs of one interval have different logical
        dates.
        """
        _, next_end = self.find_interval(end)
        return min(end + (now - self.find_interval(now)[0]), next_end - timedelta(microseconds=1))

    def overdue_after(self, now: datetime) -> timedelta:
        """Return the age from which on the latest release shows a missed run: the longest interval plus two hours."""
        return max(end - start for start, end in self._next_intervals(now)) + _SLACK

    def require_existing_times(self, now: datetime) -> None:
        """Raise :class:`ScheduleError` if a scheduled time within the next year is in an hour that clocks skip.

        Airflow gives a manual run on such a day an empty interval.
        """
        for before, after in _find_skipped_hours(self.zone, now):
            if croniter(self.expression, before - timedelta(seconds=1)).get_next(datetime) < after:
                raise ScheduleError(
                    f"has a time that does not exist on {before:%Y-%m-%d} in {self.timezone}: the clocks go from "
                    f"{before:%H:%M} to {after:%H:%M}. Choose a time outside this hour, or the time zone UTC"
                )

    def _next_intervals(self, moment: datetime) -> Iterator[tuple[datetime, datetime]]:
        for _ in range(_INTERVALS):
            start, moment = self.find_interval(moment)
            yield start, moment

    def _to_utc(self, local: datetime) -> datetime:
        return local.replace(tzinfo=self.zone, fold=1).astimezone(UTC)


def check_expression(expression: str) -> str:
    """Return ``expression`` if it is a cron expression of five fields, or a preset.

    :raises ScheduleError: for any other text.
    """
    try:
        is_valid = expression in PRESETS or (len(expression.split()) == 5 and bool(croniter(expression)))
    except (CroniterError, ValueError, KeyError):
        is_valid = False
    if not is_valid:
        raise ScheduleError(f"should be a cron expression of five fields, such as 30 1 * * *, or {', '.join(PRESETS)}")
    return expression


def _find_skipped_hours(zone: ZoneInfo, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the ranges of local times that clocks skip within the next year."""
    days = [now + timedelta(days=day) for day in range(367)]
    for (start, before), (end, since) in pairwise((day, _offset(zone, day)) for day in days):
        skipped = since - before
        if skipped > timedelta():
            low, high = start, end
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) / 2
                low, high = (low, middle) if _offset(zone, middle) != before else (middle, high)
            after = high.astimezone(zone).replace(tzinfo=None, microsecond=0)
            yield after - skipped, after


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()
