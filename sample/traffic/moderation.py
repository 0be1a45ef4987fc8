"""Scenes with moderators and administrators: reports, quarantine, erasure, purges, deleted and blocked rooms."""

import time

from sample.client import ADMIN, V3, Client, Json, q
from sample.traffic.stage import ADMINISTRATOR, Stage, visibility

PATIENCE_SECONDS = 60


def reports(stage: Stage) -> None:
    """Report events, a room and a user, and quarantine media."""
    room = stage.room("reports", "grace", preset="public_chat")
    for guest in stage.cast("mallory", "heidi"):
        guest.join(room)
    for event in stage.chat(room, ["mallory"], 4):
        reason = {"reason": stage.words(), "score": -50}
        stage.users["heidi"].call("POST", f"{V3}/rooms/{q(room)}/report/{q(event)}", reason)
    heidi, mallory, admin = stage.cast("heidi", "mallory", ADMINISTRATOR)
    heidi.call("POST", f"{V3}/rooms/{q(room)}/report", {"reason": "spam"})
    heidi.call("POST", f"{V3}/users/{q(mallory.user_id)}/report", {"reason": "spam"})
    for number in range(3):
        uploaded = mallory.call("POST", "/_matrix/media/v3/upload", raw=b"picture %d" % number)
        media = uploaded["content_uri"].removeprefix("mxc://")
        picture = {"msgtype": "m.image", "body": "🖼", "url": uploaded["content_uri"]}
        mallory.send(room, "m.room.message", picture)
        admin.call("POST", f"{ADMIN}/v1/media/quarantine/{media}")
    admin.call("POST", f"{ADMIN}/v1/media/unquarantine/{media}")


def erasure(stage: Stage) -> None:
    """Deactivate users: some with erasure, one without, and one that is reactivated after erasure."""
    admin = stage.users[ADMINISTRATOR]
    room = stage.room("erased", "alice", state=[visibility("shared")])
    stage.enter(room, "alice", "erin", "eve", "eliza", "trent", "bob")
    stage.chat(room, ["erin", "eve", "eliza", "trent"], 20)
    stage.users["eve"].leave(room)
    for name, erase in (("erin", True), ("eve", True), ("eliza", True), ("trent", False)):
        path = f"{ADMIN}/v1/deactivate/{q(stage.hs.user_id(name))}"
        admin.call("POST", path, {"erase": erase})
        stage.note("erased" if erase else "deactivated", stage.hs.user_id(name))
    path = f"{ADMIN}/v2/users/{q(stage.hs.user_id('eliza'))}"
    admin.call("PUT", path, {"deactivated": False, "password": "back again"})
    stage.note("brought back", stage.hs.user_id("eliza"))
    for name in ("victor", "alice"):
        stage.enter(room, "alice", *([name] if name != "alice" else []))
        stage.chat(room, [name, "bob"], 4)


def purged_history(stage: Stage) -> None:
    """Purge the older history of rooms, across a change of the history visibility."""
    for version in ("6", "12"):
        room = stage.room("purged-history", "frank", room_version=version)
        stage.enter(room, "frank", "grace", "ivan")
        early = stage.chat(room, ["frank", "grace", "ivan"], 30)
        stage.users["frank"].set_state(room, "m.room.history_visibility", {"history_visibility": "joined"})
        stage.users["frank"].set_state(room, "m.room.topic", {"topic": "before"})
        stage.users["frank"].redact(room, early[3])
        stage.users["ivan"].leave(room)
        last = stage.chat(room, ["frank", "grace"], 10)[-1]
        stage.users["frank"].set_state(room, "m.room.topic", {"topic": "after"})
        stage.chat(room, ["frank", "grace"], 20)
        purge_history(stage.users[ADMINISTRATOR], room, last)
        stage.users["frank"].redact(room, last, "already purged")
        stage.chat(room, ["frank", "grace"], 6)


def purge_history(admin: Client, room: str, last: str) -> None:
    """Purge the events before the event ``last``, and wait for the end of the purge."""
    body = {"purge_up_to_event_id": last, "delete_local_events": True}
    purge = admin.call("POST", f"{ADMIN}/v1/purge_history/{q(room)}", body)["purge_id"]
    _wait_for_completion(admin, f"{ADMIN}/v1/purge_history_status/{q(purge)}")


def deleted_rooms(stage: Stage) -> None:
    """Delete rooms: purged, purged and blocked, or only emptied and blocked. Block an unknown room."""
    admin = stage.users[ADMINISTRATOR]
    deletions: tuple[tuple[str, Json], ...] = (
        ("purged-room", {"purge": True, "block": False}),
        ("purged-blocked-room", {"purge": True, "block": True}),
        ("blocked-room", {"purge": False, "block": True}),
    )
    for feature, options in deletions:
        room = stage.room(feature, "heidi", state=[visibility("shared")])
        stage.enter(room, "heidi", "ivan", "judy")
        messages = stage.chat(room, ["heidi", "ivan", "judy"], 25)
        stage.users["judy"].receipt(room, messages[-1])
        stage.users["ivan"].set_account_data("org.example.room", {"was": "here"}, room)
        delete_room(admin, room, options)
    unknown = f"!neverSeen:{stage.hs.server_name}"
    admin.call("PUT", f"{ADMIN}/v1/rooms/{q(unknown)}/block", {"block": True})
    stage.note("blocked unknown room", unknown)


def delete_room(admin: Client, room: str, options: Json) -> None:
    """Delete a room with the options of the admin API, such as ``purge``, and wait until it is deleted."""
    delete = admin.call("DELETE", f"{ADMIN}/v2/rooms/{q(room)}", options)["delete_id"]
    _wait_for_completion(admin, f"{ADMIN}/v2/rooms/delete_status/{q(delete)}")


def _wait_for_completion(admin: Client, status_path: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (status := admin.call("GET", status_path)["status"]) != "complete":
        if status == "failed" or time.monotonic() > deadline:
            raise RuntimeError(f"The homeserver's clean-up is {status} after {PATIENCE_SECONDS} s; see its log")
        time.sleep(0.2)
