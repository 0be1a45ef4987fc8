"""``lakehouse positions --history`` summarizes a stream by its latest observation."""

from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from synapse_lakehouse.cli.streams.positions_history import SUMMARY

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def summarize(*observations: tuple[int, int, int | None, datetime | None]) -> tuple[object, ...]:
    """Return the last ID of a stream, its growth in an hour and in a day, and its open IDs with their start.

    :param observations: minutes before noon, last ID, safe bound, start of the open IDs.
    """
    with duckdb.connect() as lake:
        lake.execute("set TimeZone = 'UTC'; create schema audit")
        lake.execute(
            "create table audit.stream_watch (stream text, watched_at timestamptz, last_allocated_id bigint,"
            " safe_bound bigint, open_since timestamptz, vanished_writers text[])"
        )
        for minutes, last_allocated_id, bound, since in observations:
            lake.execute(
                "insert into audit.stream_watch values ('events', ?, ?, ?, ?, [])",
                [NOON - timedelta(minutes=minutes), last_allocated_id, bound, since],
            )
        ((_, last, hour, day, lag, _, since, *_),) = lake.execute(SUMMARY).fetchall()
    return last, hour, day, lag, since


@pytest.mark.parametrize(
    ("latest", "lag", "since"),
    [((100, 100, None), 0, None), ((100, None, None), None, None), ((101, 99, NOON), 2, NOON)],
    ids=["closed again", "without a bound", "open"],
)
def test_earlier_observations_do_not_count(
    latest: tuple[int, int | None, datetime | None], lag: int | None, since: datetime | None
) -> None:
    summary = summarize((10, 100, 90, NOON - timedelta(minutes=10)), (0, *latest))
    assert summary == (latest[0], latest[0] - 100, latest[0] - 100, lag, since)


def test_ids_that_a_restore_removed_are_no_growth() -> None:
    assert summarize((24 * 60, 850, 850, None), (90, 900, 900, None), (5, 800, 800, None), (0, 803, 803, None)) == (
        803, 3, 3, 0, None,
    )  # fmt: skip
