"""Scenes with kinds of rooms: versions, upgrades, aliases, knocks, spaces, long chains of state, retention."""

from sample.client import V3, Json, MatrixError, q
from sample.traffic.stage import Stage, visibility

VERSIONS = tuple(str(number) for number in range(1, 13))
YEAR_MS = 365 * 24 * 3600 * 1000
YEAR_2017_MS = 1_500_000_000_000


def room_versions(stage: Stage) -> None:
    """Send messages, a kick, a ban and a redaction in all stable room versions."""
    for version in VERSIONS:
        room = stage.room("version", "walter", room_version=version, preset="public_chat")
        stage.note(f"room version {version}", room)
        guests = stage.cast("xenia", "yusuf", "zoe")
        for guest in guests:
            guest.join(room)
        messages = stage.chat(room, ["walter", "xenia", "yusuf", "zoe"], 24)
        host = stage.users["walter"]
        host.redact(room, messages[3], "not here")
        host.moderate("kick", room, guests[0])
        host.moderate("ban", room, guests[1])
        guests[0].join(room)
        stage.chat(room, ["walter", "xenia", "zoe"], 8)


def upgrades(stage: Stage) -> None:
    """Upgrade rooms to newer versions. Their aliases move to the new rooms."""
    for old, new in (("1", "6"), ("9", "12")):
        room = stage.room("upgrade", "victor", room_version=old, preset="public_chat")
        for guest in stage.cast("ursula", "trent"):
            guest.join(room)
        stage.users["victor"].moderate("ban", room, stage.users["mallory"])
        stage.chat(room, ["victor", "ursula", "trent"], 8)
        path = f"{V3}/rooms/{q(room)}/upgrade"
        replacement = str(stage.users["victor"].call("POST", path, {"new_version": new})["replacement_room"])
        stage.note("upgrade replacement", replacement)
        stage.users["ursula"].join(replacement)
        stage.chat(replacement, ["victor", "ursula"], 8)


def aliases_and_directory(stage: Stage) -> None:
    """Publish a room with several aliases, a deleted alias, and a canonical alias."""
    room = stage.room("published", "ursula", preset="public_chat", visibility="public", topic="Łódź 🚋")
    host = stage.users["ursula"]
    server = stage.hs.server_name
    for name in ("münchen", "город", "gone", "also-here"):
        host.call("PUT", f"{V3}/directory/room/{q(f'#{name}:{server}')}", {"room_id": room})
    host.call("DELETE", f"{V3}/directory/room/{q(f'#gone:{server}')}")
    names = {"alias": f"#münchen:{server}", "alt_aliases": [f"#город:{server}"]}
    host.set_state(room, "m.room.canonical_alias", names)
    host.call("PUT", f"{V3}/directory/list/room/{q(room)}", {"visibility": "public"})
    stage.chat(room, ["ursula"], 5)


def knocking(stage: Stage) -> None:
    """Knock on rooms: knocks are accepted, refused, retracted, left open, or followed by a ban."""
    rule = {"type": "m.room.join_rules", "state_key": "", "content": {"join_rule": "knock"}}
    for value in ("shared", "invited"):
        room = stage.room("knocks", "judy", room_version="10", state=[rule, visibility(value)])
        host = stage.users["judy"]
        accepted, refused, retracted, waiting, banned = stage.cast("rupert", "sybil", "quentin", "niaj", "mallory")
        stage.chat(room, ["judy"], 3)
        for knocker in (accepted, refused, retracted, waiting, banned):
            knocker.knock(room, stage.words())
            stage.chat(room, ["judy"], 1)
        host.invite(room, accepted)
        accepted.join(room)
        host.moderate("kick", room, refused, "not you")
        retracted.leave(room)
        host.moderate("ban", room, banned)
        stage.chat(room, ["judy", "rupert"], 8)


def spaces(stage: Stage) -> None:
    """Create a space and a restricted room that its members may join. One member leaves the room."""
    space = stage.room("space", "grace", creation_content={"type": "m.space"}, preset="public_chat")
    rule: Json = {
        "type": "m.room.join_rules",
        "state_key": "",
        "content": {"join_rule": "restricted", "allow": [{"type": "m.room_membership", "room_id": space}]},
    }
    child = stage.room("restricted", "grace", room_version="10", state=[rule, visibility("invited")])
    host = stage.users["grace"]
    for room in (child, stage.found["space"][0]):
        host.set_state(space, "m.space.child", {"via": [stage.hs.server_name], "order": "é"}, room)
    for guest in stage.cast("lena", "heidi"):
        guest.join(space)
        guest.join(child)
    stage.chat(child, ["grace", "lena", "heidi"], 10)
    stage.users["heidi"].leave(child)
    host.set_state(space, "m.space.child", {}, child)


def long_state_chain(stage: Stage) -> None:
    """Send 270 state changes in a row. Synapse stores the full state twice, after 100 deltas each."""
    room = stage.room("long-state-chain", "bot", room_version="11")
    stage.enter(room, "bot", "silent")
    for number in range(270):
        key = f"sensor-{stage.rng.randint(0, 24)}"
        stage.users["bot"].set_state(room, "org.example.reading", {"value": number, "unit": "°C"}, key)


def crowded(stage: Stage) -> None:
    """Create a room that all users join."""
    room = stage.room("crowded", "alice", preset="public_chat", room_version="12")
    members = [name for name in stage.users if name not in ("alice", "silent")]
    for name in members:
        stage.users[name].join(room)
    stage.chat(room, ["alice", *members], 120)
    stage.users["silent"].join(room)


def retention(stage: Stage) -> None:
    """Set retention policies: short, long, incomplete, empty and changed ones, and one with events of 2017."""
    policies: list[Json] = [
        {"max_lifetime": 1000},
        {"max_lifetime": 20 * YEAR_MS, "min_lifetime": 1000},
        {"min_lifetime": 1000},
        {},
        {"max_lifetime": 2 * YEAR_MS},
    ]
    for policy in policies:
        room = stage.room("retention", "olivia", state=[visibility("shared")])
        stage.enter(room, "olivia", "peggy")
        stage.chat(room, ["olivia", "peggy"], 6)
        stage.users["olivia"].set_state(room, "m.room.retention", policy)
        stage.chat(room, ["olivia", "peggy"], 6)
    changed, bridged = stage.found["retention"][0], stage.found["retention"][-1]
    stage.users["olivia"].set_state(changed, "m.room.retention", {"max_lifetime": YEAR_MS})
    ghost = stage.users["bridged_ann"]
    stage.users["olivia"].invite(bridged, ghost)
    ghost.join(bridged)
    stage.note("events of the past", bridged)
    for number in range(10):
        when = {"ts": str(YEAR_2017_MS + number * 60_000)}
        ghost.send(bridged, "m.room.message", {"msgtype": "m.text", "body": stage.words()}, params=when)


def abandoned(stage: Stage) -> None:
    """Create a room that all members leave and one forgets, and direct chats, one of which is declined."""
    room = stage.room("abandoned", "rupert")
    stage.enter(room, "rupert", "sybil")
    stage.chat(room, ["rupert", "sybil"], 6)
    for member in stage.cast("sybil", "rupert"):
        member.leave(room)
    stage.users["sybil"].forget(room)
    for name in ("niaj", "sybil"):
        invitee = stage.users[name]
        direct = stage.users["rupert"].create_room(
            preset="trusted_private_chat", is_direct=True, invite=[invitee.user_id]
        )
        stage.note("direct chat", direct)
        stage.users["rupert"].say(direct, "hello?")
        if name == "niaj":
            invitee.leave(direct)
        else:
            invitee.join(direct)
            stage.chat(direct, ["rupert", name], 4)


def refused(stage: Stage) -> None:
    """Send events that the homeserver refuses. Their stream IDs are reserved and not used."""
    room = stage.room("refused", "frank")
    stage.enter(room, "frank", "niaj")
    for _ in range(5):
        try:
            stage.users["niaj"].set_state(room, "m.room.topic", {"topic": "not allowed"})
        except MatrixError as error:
            if error.errcode != "M_FORBIDDEN":
                raise
    stage.chat(room, ["frank", "niaj"], 4)
