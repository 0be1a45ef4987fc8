"""A room is acknowledged with or without a time."""

import pytest
from pydantic import ValidationError

from synapse_lakehouse.config.acknowledged_rooms import parse_acknowledged_rooms
from synapse_lakehouse.config.settings import Settings


@pytest.mark.parametrize(
    ("setting", "rooms"),
    [
        ("", []),
        ("!a:b !c", [("!a:b", 0), ("!c", 0)]),
        ("!a:b@1970-01-02 !c@1970-01-01T02:00+01:00", [("!a:b", 86_400_000), ("!c", 3_600_000)]),
        ("!a:b@1970-01-01T00:00:01Z", [("!a:b", 1_000)]),
        # An ID may contain an @.
        ("!a@b:c !a@b@1970-01-02", [("!a@b:c", 0), ("!a@b", 86_400_000)]),
    ],
)
def test_rooms_and_times_are_read(setting: str, rooms: list[tuple[str, int]]) -> None:
    expected = [{"room": room.encode().hex(), "before": before} for room, before in rooms]
    assert parse_acknowledged_rooms(setting) == expected


@pytest.mark.parametrize("setting", ["!a:b@2026-13-40", "!a:b@2026-11-30T25:00", "!a:b #c:d", "a:b"])
def test_other_words_are_refused(setting: str) -> None:
    with pytest.raises(ValidationError, match="lakehouse_acknowledged_rooms"):
        Settings(lakehouse_acknowledged_rooms=setting)
