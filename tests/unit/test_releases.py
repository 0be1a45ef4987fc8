"""The releases of an interval, whatever the order of its runs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from synapse_lakehouse.audit.releases import Release, compute_accepted_bounds, select_interval_releases
from synapse_lakehouse.config.run import Run

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def release(number: int, day: int, run_id: str | None = None) -> Release:
    """A release without tables."""
    start, end = DAY + timedelta(days=day), DAY + timedelta(days=day + 1)
    return Release(number, run_id or f"run {number}", start, end, "", "", "it", {}, {}, {}, 1, 0, end, [], end)


def test_each_release_comes_with_its_predecessor() -> None:
    third, first, second, again, compacted = published = [
        release(1, 3),
        release(2, 1),
        release(3, 2),
        release(4, 1),
        release(5, 1, "run 4"),
    ]
    day = Run("now", first.interval_start, first.interval_end)
    assert select_interval_releases(published, day) == [(third, first), (second, again)]
    assert compacted not in [left for _, left in select_interval_releases(published, day)]
    assert select_interval_releases(published, Run("now", third.interval_start, third.interval_end)) == [(None, third)]
    assert select_interval_releases(published, Run("now", DAY, DAY + timedelta(days=1))) == []
    assert select_interval_releases([], day) == []


def test_a_cleared_run_published_again_is_no_compaction() -> None:
    first = replace(release(1, 1, "run"), accepted_at=DAY)
    compacted = replace(first, number=2, published_at=DAY + timedelta(hours=1))
    again = replace(release(3, 1, "run"), accepted_at=DAY + timedelta(hours=2))
    published = [first, compacted, again, replace(again, number=4)]
    day = Run("run", first.interval_start, first.interval_end)
    assert select_interval_releases(published, day) == [(None, first), (compacted, again)]


def test_a_bound_that_cannot_be_measured_now_stays_accepted() -> None:
    before = replace(release(1, 1), positions={"events": 7, "receipts": 5})
    assert compute_accepted_bounds(before, {"events": None, "receipts": 9, "caches": None}) == {
        "events": 7,
        "receipts": 9,
    }
    assert compute_accepted_bounds(None, {"events": None, "receipts": 9}) == {"receipts": 9}
