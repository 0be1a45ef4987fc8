"""Differences between two observations of a stream."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.cli.streams.positions_history import draw_bars
from synapse_lakehouse.streams.watch.observe_stream import StreamObservation, describe_observation, observe_stream

WRITERS = frozenset({"ep1", "ep2"})


@dataclass
class Watcher:
    """Observe a stream every five minutes."""

    stream: str = "events"
    configured: frozenset[str] | None = WRITERS
    now: datetime = datetime(2026, 11, 17, tzinfo=UTC)
    last: StreamObservation | None = field(default=None)

    def observe(
        self, positions: dict[str, int], last_allocated_id: int, beyond: tuple[int, ...] = ()
    ) -> StreamObservation:
        self.now += timedelta(minutes=5)
        self.last = observe_stream(
            catalogue.load_catalogue().stream(self.stream),
            positions,
            last_allocated_id,
            beyond,
            self.configured,
            self.last,
            self.now,
        )
        return self.last


def minutes_open(observation: StreamObservation) -> float | None:
    return (
        None
        if observation.open_since is None
        else (observation.watched_at - observation.open_since) / timedelta(minutes=1)
    )


def minutes_unchanged(observation: StreamObservation, writer: str) -> float:
    return (observation.watched_at - observation.unchanged_since[writer]) / timedelta(minutes=1)


def test_an_idle_stream_has_no_open_id() -> None:
    observation = Watcher().observe({"ep1": 7, "ep2": 9}, 9, (8, 9))
    assert (observation.safe_bound, observation.lag, observation.open_since) == (9, 0, None)


def test_an_open_id_is_timed_until_it_closes() -> None:
    watcher = Watcher()
    assert minutes_open(watcher.observe({"ep1": 7, "ep2": 7}, 8)) == 0
    assert minutes_open(watcher.observe({"ep1": 7, "ep2": 9}, 9, (9,))) == 5
    assert watcher.observe({"ep1": 9, "ep2": 9}, 9).open_since is None


def test_purged_rows_do_not_reopen_ids() -> None:
    watcher = Watcher()
    watcher.observe({"ep1": 5, "ep2": 9}, 9, (6, 7, 8, 9))
    observation = watcher.observe({"ep1": 5, "ep2": 9}, 9, (6, 8, 9))
    assert (observation.safe_bound, observation.open_since) == (9, None)
    assert watcher.observe({"ep1": 4, "ep2": 9}, 9, (6, 8, 9)).safe_bound == 4


def test_another_open_id_gets_its_own_time() -> None:
    watcher = Watcher()
    watcher.observe({"ep1": 7, "ep2": 7}, 8)
    assert minutes_open(watcher.observe({"ep1": 8, "ep2": 8}, 9)) == 0


def test_an_idle_writer_differs_from_a_stalled_writer() -> None:
    watcher = Watcher()
    watcher.observe({"ep1": 5, "ep2": 7}, 7)
    observation = watcher.observe({"ep1": 5, "ep2": 20}, 20)
    assert (observation.behind("ep1"), minutes_unchanged(observation, "ep1")) == (15, 5)
    assert (observation.behind("ep2"), minutes_unchanged(observation, "ep2")) == (0, 0)


def test_a_writer_without_its_position_is_missing() -> None:
    watcher = Watcher()
    watcher.observe({"ep1": 7, "ep2": 9}, 9)
    for _ in range(2):
        observation = watcher.observe({"ep1": 9}, 10)
        assert (observation.vanished_writers, observation.safe_bound, observation.rule) == (
            ("ep2",),
            None,
            "missing_writer",
        )
    assert watcher.observe({"ep1": 9, "ep2": 10}, 10).vanished_writers == ()


def test_a_removed_writer_is_not_missing() -> None:
    watcher = Watcher()
    watcher.observe({"ep1": 7, "ep2": 9}, 9)
    watcher.configured = frozenset({"ep1"})
    assert watcher.observe({"ep1": 9}, 9).vanished_writers == ()


def test_a_vanished_inferred_writer_is_missing() -> None:
    watcher = Watcher(configured=None)
    assert watcher.observe({"ep1": 7, "ep2": 9}, 9).rule == "provisional"
    observation = watcher.observe({"ep1": 9}, 9)
    assert (observation.vanished_writers, observation.safe_bound, observation.rule) == (
        ("ep2",),
        None,
        "missing_learned_writer",
    )


def test_a_provisional_bound_does_not_become_a_configured_one() -> None:
    watcher = Watcher(configured=None)
    assert watcher.observe({"ep1": 1000}, 1000).rule == "provisional"
    watcher.configured = WRITERS
    observation = watcher.observe({"ep1": 1000, "ep2": 900}, 1000)
    assert (observation.safe_bound, observation.lag, observation.rule) == (900, 100, "configured")
    observation = watcher.observe({"ep1": 1000, "ep2": 1000}, 1000)
    assert (observation.safe_bound, observation.rule) == (1000, "configured")


def test_a_renamed_inferred_writer_is_not_missing() -> None:
    watcher = Watcher(configured=None)
    watcher.observe({"ep1": 7, "ep2": 9}, 9)
    for _ in range(2):
        observation = watcher.observe({"ep1": 12, "ep3": 11}, 12)
        assert (observation.vanished_writers, observation.missing_writers, observation.rule) == ((), (), "provisional")


def test_inferred_writers_may_be_renamed_in_turn() -> None:
    watcher = Watcher(configured=None)
    watcher.observe({"ep1": 7, "ep2": 9}, 9)
    assert len(watcher.observe({"new1": 12}, 12).vanished_writers) == 1
    for _ in range(2):
        observation = watcher.observe({"new1": 12, "new2": 13}, 13)
        assert (observation.vanished_writers, observation.missing_writers, observation.rule) == ((), (), "provisional")


def test_backfill_counts_down_while_its_sequence_counts_up() -> None:
    watcher = Watcher("backfill")
    observation = watcher.observe({"ep1": -10, "ep2": -12}, 13, (-11,))
    assert (observation.safe_bound, observation.lag, observation.behind("ep2")) == (-11, 2, 1)
    assert minutes_open(watcher.observe({"ep1": -10, "ep2": -12}, 13, (-11,))) == 5


def test_a_stream_without_positions_has_its_own_rule() -> None:
    observation = Watcher("caches", None).observe({}, 500)
    assert (observation.safe_bound, observation.lag, observation.rule) == (None, None, "no_positions")


def test_the_log_names_the_writer_that_limits_the_bound() -> None:
    watcher = Watcher()
    watcher.observe({"ep1": 7, "ep2": 7}, 7)
    line = describe_observation(watcher.observe({"ep1": 7, "ep2": 1210}, 1210))
    assert all(value in line for value in ("events", "up to 7", "1,203", "ep1", "5 min"))
    assert "ep2" not in line
    line = describe_observation(watcher.observe({"ep1": 1210}, 1210))
    assert all(value in line for value in ("events", "missing writer", "ep2"))
    assert "ep1" not in line


@pytest.mark.parametrize(("values", "text"), [([0, 0], "▁▁"), ([0, 7, None, 14], "▁▄·█"), ([], ""), ([None], "·")])
def test_lags_are_drawn(values: list[int | None], text: str) -> None:
    assert draw_bars(values) == text
