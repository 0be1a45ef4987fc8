"""Regressions of positions, sequences and bounds since the previous release, without the acknowledged ones."""

from typing import Any

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.streams.checks.operator_acknowledgements import parse_acknowledged_ids
from synapse_lakehouse.streams.checks.position_regression import find_unacknowledged_regressions

DECLARED = catalogue.load_catalogue()


def position_row(stream: str = "events", **columns: Any) -> dict[str, Any]:
    row = {"stream": stream, "writers": [("ep1", 900), ("ep2", 90)], "sequence_last_value": 950}
    return row | {"sequence_is_called": True, "safe_bound": 90, "previous_bound": 90} | columns


def regressions(now: dict[str, Any], before: dict[str, Any], setting: str = "") -> list[str]:
    acknowledged = parse_acknowledged_ids(DECLARED, setting)
    return find_unacknowledged_regressions(DECLARED, [now], [before], acknowledged)[now["stream"]]


def test_idle_advancing_new_and_removed_writers_do_not_regress() -> None:
    before = position_row()
    assert regressions(position_row(), before) == []
    assert (
        regressions(position_row(writers=[("ep1", 901), ("ep3", 7)], sequence_last_value=951, safe_bound=None), before)
        == []
    )
    assert find_unacknowledged_regressions(DECLARED, [position_row()], [], {}) == {"events": []}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"writers": [("ep1", 800), ("ep2", 90)]}, ["ep1 from 900 to 800"]),
        (
            {"safe_bound": 80, "writers": [("ep1", 900), ("ep2", 80)]},
            ["ep2 from 90 to 80", "the safe bound from 90 to 80"],
        ),
        ({"sequence_last_value": 1, "sequence_is_called": False}, ["events_stream_seq from 950 to 0"]),
    ],
    ids=["behind a slower writer", "the slowest", "the sequence alone"],
)  # fmt: skip
def test_regressions_are_reported(now: dict[str, Any], expected: list[str]) -> None:
    assert regressions(position_row(**now), position_row()) == expected


def test_negative_positions_regress_upwards() -> None:
    before = position_row("backfill", writers=[("ep1", -900)], safe_bound=-900, previous_bound=-900)
    assert regressions(before | {"writers": [("ep1", -901)], "safe_bound": -901}, before) == []
    assert regressions(before | {"writers": [("ep1", -899)]}, before) == ["ep1 from -900 to -899"]


def test_only_fully_acknowledged_regressions_are_accepted() -> None:
    restored = position_row(writers=[("ep1", 800), ("ep2", 90)])
    assert regressions(dict(restored), position_row(), "events:801..900") == []
    assert regressions(dict(restored), position_row(), "events:801..850,851..950") == []
    assert regressions(dict(restored), position_row(), "events:802..900") == ["ep1 from 900 to 800"]
    assert regressions(dict(restored), position_row(), "events:801..899 receipts:1..900") == ["ep1 from 900 to 800"]
