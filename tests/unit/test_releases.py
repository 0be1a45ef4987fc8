"""Selection of the releases of an interval, for any order of its runs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from synapse_lakehouse.audit.releases import Release, compute_accepted_bounds, select_interval_releases
from synapse_lakehouse.config.run import Run

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def release(number: int, day: int, run_id: str | None = None) -> Release:
    """Return a release without tables."""
    start, end = DAY + timedelta(days=day), DAY + timedelta(days=day + 1)
    return Release(number, run_id or f"run {number}", start, end, "", "", "it", {}, {}, {}, 1, 0, end, [], end)


def test_each_release_comes_with_its_predecessor() -> None:
    third, first, second, repeated, compacted = releases = [
        release(1, 3),
        release(2, 1),
        release(3, 2),
        release(4, 1),
        release(5, 1, "run 4"),
    ]
    day = Run("now", first.interval_start, first.interval_end)
    assert select_interval_releases(releases, day) == [(third, first), (second, repeated)]
    assert compacted not in [selected for _, selected in select_interval_releases(releases, day)]
    assert select_interval_releases(releases, Run("now", third.interval_start, third.interval_end)) == [(None, third)]
    assert select_interval_releases(releases, Run("now", DAY, DAY + timedelta(days=1))) == []
    assert select_interval_releases([], day) == []


def test_a_cleared_run_published_again_is_no_compaction() -> None:
    first = replace(release(1, 1, "run"), accepted_at=DAY)
    compacted = replace(first, number=2, published_at=DAY + timedelta(hours=1))
    republished = replace(release(3, 1, "run"), accepted_at=DAY + timedelta(hours=2))
    releases = [first, compacted, republished, replace(republished, number=4)]
    day = Run("run", first.interval_start, first.interval_end)
    assert select_interval_releases(releases, day) == [(None, first), (compacted, republished)]


def test_a_bound_without_a_measurement_stays_accepted() -> None:
    previous = replace(release(1, 1), positions={"events": 7, "receipts": 5})
    assert compute_accepted_bounds(previous, {"events": None, "receipts": 9, "caches": None}) == {
        "events": 7,
        "receipts": 9,
    }
    assert compute_accepted_bounds(None, {"events": None, "receipts": 9}) == {"receipts": 9}
