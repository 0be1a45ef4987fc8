"""A running Synapse shows former members of a room the events that ``lakehouse visible`` assumes."""

from pathlib import Path

import pytest

from sample.client import V1, V3, Client, Json, MatrixError, q
from sample.homeserver import homeserver

pytestmark = pytest.mark.heavy


def test_pages_that_go_forwards_do_not_end_at_the_leave(tmp_path: Path) -> None:
    with homeserver(tmp_path / "synapse", workers=False) as hs:
        alice, bob, erin = (hs.register(name) for name in ("alice", "bob", "erin"))
        room = alice.create_room(preset="public_chat")
        for user in (bob, erin):
            user.join(room)
        before = alice.say(room, "before")
        for user in (bob, erin):
            user.leave(room)
        erin.forget(room)
        thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": before}}
        after = alice.send(room, "m.room.message", {"msgtype": "m.text", "body": "after"} | thread)

        assert (before in _read_page(bob, room, "b"), after in _read_page(bob, room, "b")) == (True, False)
        assert {before, after} <= _read_page(bob, room, "f")
        assert _event_ids_of(bob.call("GET", f"{V1}/rooms/{q(room)}/relations/{q(before)}")) == {after}
        with pytest.raises(MatrixError):
            bob.call("GET", f"{V3}/rooms/{q(room)}/event/{q(after)}")
        with pytest.raises(MatrixError):
            _read_page(erin, room, "f")


def _read_page(user: Client, room: str, direction: str) -> set[str]:
    return _event_ids_of(user.call("GET", f"{V3}/rooms/{q(room)}/messages", params={"dir": direction, "limit": "100"}))


def _event_ids_of(page: Json) -> set[str]:
    return {event["event_id"] for event in page["chunk"]}
