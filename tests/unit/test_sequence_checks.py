"""Faults of sequences that Synapse checks at its start, and regressions of positions and sequences."""

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.streams.checks.sequences import StreamProgress, check_regression, find_sequence_faults

EVENTS, BACKFILL = (catalogue.load_catalogue().stream(name) for name in ("events", "backfill"))


@pytest.mark.parametrize(
    ("stream", "now"),
    [
        (EVENTS, StreamProgress(9, {"ep1": 9, "ep2": 4}, {"events": 9})),
        (EVENTS, StreamProgress(12, {"ep1": 9}, {"events": 11})),
        (EVENTS, StreamProgress(0, {}, {})),
        (BACKFILL, StreamProgress(9, {"ep1": -9, "ep2": -4}, {"events": -8})),
    ],
)
def test_consistent_sequences_have_no_fault(stream: catalogue.Stream, now: StreamProgress) -> None:
    assert list(find_sequence_faults(stream, now)) == []
    assert check_regression(stream, now, now) is None


def test_a_position_beyond_the_sequence_stops_synapse() -> None:
    (fault,) = find_sequence_faults(EVENTS, StreamProgress(7, {"ep1": 9, "ep2": 4}, {"events": 7}))
    assert "9 of ep1" in fault.message
    assert fault.repair == "select setval('events_stream_seq', 9);"


def test_an_uncalled_sequence_has_allocated_no_id() -> None:
    (fault,) = find_sequence_faults(EVENTS, StreamProgress(0, {"ep1": 1}, {}))
    assert "1 of ep1" in fault.message


def test_rows_beyond_the_sequence_are_a_fault() -> None:
    (fault,) = find_sequence_faults(BACKFILL, StreamProgress(7, {"ep1": -7}, {"events": -9, "ex_outlier_stream": -5}))
    assert "-9 of events" in fault.message
    assert fault.repair == "select setval('events_backfill_stream_seq', 9);"


def test_rows_beyond_a_startup_sequence_are_a_fault() -> None:
    groups = catalogue.StartupSequence(name="state_group_id_seq", ids={"state_groups": "id"})
    assert list(find_sequence_faults(groups, StreamProgress(9, {}, {"state_groups": 9}))) == []
    (fault,) = find_sequence_faults(groups, StreamProgress(7, {}, {"state_groups": 9}))
    assert "9 of state_groups" in fault.message
    assert fault.repair == "select setval('state_group_id_seq', 9);"


@pytest.mark.parametrize("standby", ["previous", "current"])
def test_sequences_on_a_standby_may_be_ahead(standby: str) -> None:
    options = {name: {"may_be_ahead": name == standby} for name in ("previous", "current")}
    assert (
        check_regression(
            EVENTS,
            StreamProgress(42, {"ep1": 9}, {}, **options["previous"]),
            StreamProgress(10, {"ep1": 9}, {}, **options["current"]),
        )
        is None
    )
    later_sequence = StreamProgress(43, {"ep1": 9}, {}, **options["previous"])
    assert (
        check_regression(EVENTS, later_sequence, StreamProgress(10, {"ep1": 9}, {}, **options["current"])) is not None
    )
    later_position = StreamProgress(42, {"ep1": 10}, {}, **options["previous"])
    assert (
        check_regression(EVENTS, later_position, StreamProgress(10, {"ep1": 9}, {}, **options["current"])) is not None
    )
    assert check_regression(EVENTS, StreamProgress(11, {}, {}), StreamProgress(10, {}, {})) is not None


@pytest.mark.parametrize(("stream", "position"), [(EVENTS, -3), (BACKFILL, 3)])
def test_a_position_of_the_wrong_sign_is_deleted(stream: catalogue.Stream, position: int) -> None:
    (fault,) = find_sequence_faults(stream, StreamProgress(9, {"o'ep": position}, {}))
    assert fault.repair.endswith("and instance_name = 'o''ep';")


@pytest.mark.parametrize(("stream", "sign"), [(EVENTS, 1), (BACKFILL, -1)])
def test_a_regression_lists_ids_that_would_be_reused(stream: catalogue.Stream, sign: int) -> None:
    fault = check_regression(
        stream, StreamProgress(20, {"ep1": sign * 18, "gone": sign * 2}, {}), StreamProgress(12, {"ep1": sign * 11}, {})
    )
    assert fault is not None
    assert f"{stream.name}: ep1 from {sign * 18} to {sign * 11}, " in fault.message
    assert fault.repair.endswith(", 20);")
