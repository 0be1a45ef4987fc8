"""End of support of PostgreSQL, and findings about pending background updates."""

from datetime import UTC, date, datetime, timedelta

import pytest

from synapse_lakehouse.catalogue.postgres_end_of_support import find_end_of_support
from synapse_lakehouse.cli.doctor.finding import FindingLevel
from synapse_lakehouse.cli.doctor.upgrade import describe_updates
from synapse_lakehouse.report.update_history import PendingUpdate, Sighting

NOW = datetime(2026, 11, 28, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("version", "end"),
    [
        ("15.4 (Debian 15.4-1)", date(2027, 11, 11)),
        ("18.0", date(2030, 11, 14)),
        ("14.23", date(2026, 11, 12)),
        ("9.6.24", date(2025, 11, 13)),
        ("19beta1", None),
        ("20.1", None),
    ],
)
def test_each_version_has_its_end_of_support(version: str, end: date | None) -> None:
    assert find_end_of_support(version) == end


@pytest.mark.parametrize(
    ("unchanged_since", "level"), [(NOW - 2 * DAY, FindingLevel.WARN), (NOW - DAY / 2, FindingLevel.OK)]
)
def test_an_update_without_progress_for_a_day_warns(unchanged_since: datetime, level: FindingLevel) -> None:
    update = PendingUpdate(
        "event_search", None, '{"remaining": 7}', Sighting(3, NOW - 3 * DAY), Sighting(4, unchanged_since), False
    )
    (finding,) = describe_updates([update], NOW)
    assert finding.level is level
    assert "release 3 (2026-11-25" in finding.message
    assert '{"remaining": 7}' in finding.message


def test_an_update_that_waits_names_the_other_one() -> None:
    sighting = Sighting(3, NOW - 3 * DAY)
    first = PendingUpdate("first", None, "{}", sighting, sighting, False)
    second = PendingUpdate("second", "first", "{}", sighting, sighting, False)
    findings = list(describe_updates([first, second], NOW))
    assert [(finding.level, "waits for first" in finding.message) for finding in findings] == [
        (FindingLevel.WARN, False), (FindingLevel.OK, True)
    ]  # fmt: skip
