"""Scenes with rooms of all history visibilities and with all changes of memberships."""

from sample.client import Json
from sample.traffic.stage import Stage, visibility

VALUES = ("world_readable", "shared", "invited", "joined")
REGULARS = ("alice", "bob", "mallory", "erin")


def all_visibilities(stage: Stage) -> None:
    """Create a room for each of the four values, and a room with an unknown value."""
    for value in (*VALUES, "bogus"):
        room = stage.room("visibility", "alice", state=[visibility(value)], topic=f"history: {value}")
        stage.note(f"visibility {value}", room)
        change_memberships(stage, room, changes=[])


def changing_visibility(stage: Stage) -> None:
    """Create rooms whose visibility changes between membership changes, also to invalid and missing values."""
    changes: list[Json] = [{"history_visibility": value} for value in ("joined", "world_readable", "invited", "shared")]
    changes += [{"history_visibility": "bogus"}, {"history_visibility": "joined"}, {}, {"history_visibility": 7}]
    changes += [{"history_visibility": None}, {"history_visibility": "invited"}, {"history_visibility": "shared"}]
    for version in ("5", "10", "12"):
        stage.rng.shuffle(changes)
        room = stage.room("visibility-changes", "alice", room_version=version)
        change_memberships(stage, room, changes)


def peeking(stage: Stage) -> None:
    """Let a guest read a world-readable room, and join a room that admits guests."""
    guest = stage.hs.register_guest()
    stage.note("guest", guest.user_id)
    readable = stage.room("peeking", "dave", state=[visibility("world_readable")], preset="public_chat")
    event = stage.chat(readable, ["dave"], 12)[-1]
    guest.call("GET", f"/_matrix/client/v3/rooms/{readable}/event/{event}")
    access: Json = {"type": "m.room.guest_access", "state_key": "", "content": {"guest_access": "can_join"}}
    open_room = stage.room("peeking", "dave", state=[access, visibility("joined")], preset="public_chat")
    stage.chat(open_room, ["dave"], 3)
    guest.join(open_room)
    guest.say(open_room, "a guest speaks")
    stage.chat(open_room, ["dave"], 3)


def change_memberships(stage: Stage, room: str, changes: list[Json]) -> None:
    """Change memberships of ``room`` in all ways, with messages and the next of ``changes`` in between."""
    host = stage.users["alice"]
    carol, dave, frank, grace = stage.cast("carol", "dave", "frank", "grace")
    heidi, ivan, judy, peggy = stage.cast("heidi", "ivan", "judy", "peggy")
    pending = iter(changes)

    def talk() -> None:
        stage.chat(room, REGULARS, stage.rng.randint(2, 5))
        content = next(pending, None)
        if content is not None:
            host.set_state(room, "m.room.history_visibility", content)
            stage.chat(room, REGULARS, 2)

    stage.chat(room, ["alice"], 2)
    stage.enter(room, "alice", *REGULARS[1:])
    talk()
    host.invite(room, carol, frank, grace)  # carol accepts late, frank never, grace declines
    stage.enter(room, "alice", "dave", "heidi", "ivan", "judy", "peggy")
    talk()
    stage.chat(room, ["dave", "heidi", "ivan"], 4)
    dave.leave(room, reason="enough")
    grace.leave(room)
    talk()
    host.moderate("kick", room, heidi, "kicked")
    host.moderate("ban", room, ivan, "banned")
    host.moderate("ban", room, judy)
    peggy.leave(room)
    talk()
    host.moderate("unban", room, judy)
    stage.enter(room, "alice", "judy", "peggy")
    talk()
    carol.join(room)
    carol.say(room, "finally here")
    talk()
    host.invite(room, heidi, stage.users["olivia"])
    host.moderate("kick", room, stage.users["olivia"], "invitation revoked")
    talk()
    judy.leave(room)
    stage.enter(room, "alice", "dave")
    dave.join(room)  # a second join without a leave
    name = {"membership": "join", "displayname": stage.words()}
    peggy.set_state(room, "m.room.member", name, peggy.user_id)
    talk()
    for content in pending:
        host.set_state(room, "m.room.history_visibility", content)
        stage.chat(room, REGULARS, 2)
    stage.chat(room, [*REGULARS, "carol", "dave"], 6)
