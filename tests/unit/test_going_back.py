"""What went back since the release before, and what of it nobody has acknowledged."""

from typing import Any

import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.streams.checks.acknowledged import parse_acknowledged_ids
from synapse_lakehouse.streams.checks.position_regression import record_regressions

DECLARED = catalogue.load_catalogue()


def measured(stream: str = "events", **other: Any) -> dict[str, Any]:
    row = {"stream": stream, "writers": [("ep1", 900), ("ep2", 90)], "sequence_last_value": 950}
    return row | {"sequence_is_called": True, "safe_bound": 90, "previous_bound": 90} | other


def went_back(now: dict[str, Any], before: dict[str, Any], setting: str = "") -> list[str]:
    record_regressions(DECLARED, [now], [before], parse_acknowledged_ids(DECLARED, setting))
    return list(now["went_back"])


def test_nothing_went_back_where_writers_rest_work_are_added_or_gone() -> None:
    before = measured()
    assert went_back(measured(), before) == []
    assert (
        went_back(measured(writers=[("ep1", 901), ("ep3", 7)], sequence_last_value=951, safe_bound=None), before) == []
    )
    record_regressions(DECLARED, [first := measured()], [], {})
    assert first["went_back"] == []


@pytest.mark.parametrize(
    ("now", "told"),
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
def test_whatever_went_back_is_told(now: dict[str, Any], told: list[str]) -> None:
    assert went_back(measured(**now), measured()) == told


def test_negative_positions_go_back_upwards() -> None:
    before = measured("backfill", writers=[("ep1", -900)], safe_bound=-900, previous_bound=-900)
    assert went_back(before | {"writers": [("ep1", -901)], "safe_bound": -901}, before) == []
    assert went_back(before | {"writers": [("ep1", -899)]}, before) == ["ep1 from -900 to -899"]


def test_what_is_acknowledged_is_accepted_and_nothing_less() -> None:
    restored = measured(writers=[("ep1", 800), ("ep2", 90)])
    assert went_back(dict(restored), measured(), "events:801..900") == []
    assert went_back(dict(restored), measured(), "events:801..850,851..950") == []
    assert went_back(dict(restored), measured(), "events:802..900") == ["ep1 from 900 to 800"]
    assert went_back(dict(restored), measured(), "events:801..899 receipts:1..900") == ["ep1 from 900 to 800"]
