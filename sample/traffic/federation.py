"""Scenes with a second homeserver: joins in both directions, backfill, remote invitations, soft failures."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from sample.client import V3, Client, Json, MatrixError, q
from sample.homeserver import Synapse
from sample.traffic.accounts import upload_keys
from sample.traffic.moderation import purge_history
from sample.traffic.stage import ADMINISTRATOR, Stage, visibility

PATIENCE_SECONDS = 90
ATTEMPTS = 6


def federation(stage: Stage, remote: Synapse) -> None:
    """Play all parts that need the running homeserver ``remote``."""
    rick, rosa = remote.register("rick", displayname="Rick 🌍"), remote.register("rosa", displayname="Rosa")
    for client in (rick, rosa):
        upload_keys(client)
    stage.note("remote users", rick.user_id, rosa.user_id)
    _visit_local_rooms(stage, rick, rosa)
    _join_remote_rooms(stage, remote, rick, rosa)
    _invite_from_remote(stage, rick)
    _soft_fail_events(stage, rosa)


def unreachable(stage: Stage) -> None:
    """Send to-device messages and device changes after the other homeserver stopped. They stay undelivered."""
    frank = stage.users["frank"]
    rosa = stage.found["remote users"][1]
    upload_keys(frank)
    frank.call("PUT", f"{V3}/devices/{frank.device_id}", {"display_name": "renamed"})
    for number in range(3):
        path = f"{V3}/sendToDevice/m.room_key_request/u{number}"
        frank.call("PUT", path, {"messages": {rosa: {"*": {"action": "request", "request_id": str(number)}}}})
    stage.chat(stage.found["visited"][0], ["frank"], 2)


def _visit_local_rooms(stage: Stage, rick: Client, rosa: Client) -> None:
    """Let users of the other homeserver join, leave, be kicked from and redact in local rooms."""
    for version, value in (("6", "joined"), ("12", "invited")):
        room = stage.room("visited", "frank", room_version=version, state=[visibility(value)])
        stage.enter(room, "frank", "grace", "dave")
        stage.chat(room, ["frank", "grace"], 5)
        frank, grace = stage.cast("frank", "grace")
        for guest in (rick, rosa):
            frank.invite(room, guest)
            _retry(partial(guest.join, room, params=_via_local_server(stage)))
        for _ in range(5):
            last = stage.rng.choice((rick, rosa)).say(room, stage.words())
            stage.chat(room, ["frank", "grace"], 1)
        _wait_for_event(frank, room, last)
        _wait_for_event(rosa, room, grace.say(room, "can you hear us?"))
        rosa.redact(room, rosa.say(room, "never mind"))
        rosa.receipt(room, last)
        frank.moderate("kick", room, rick, "good bye")
        _wait_for_event(frank, room, rosa.say(room, "what did he do?"))
        if version == "6":
            rosa.leave(room)


def _join_remote_rooms(stage: Stage, remote: Synapse, rick: Client, rosa: Client) -> None:
    """Let local users join remote rooms late: state arrives as outliers, and history by backfill."""
    for version, value in (("10", "shared"), ("12", "world_readable"), ("11", "joined")):
        options: Json = {"preset": "public_chat", "room_version": version, "initial_state": [visibility(value)]}
        room = rick.create_room(name=f"elsewhere {version}", **options)
        stage.note("joined elsewhere", room)
        rosa.join(room)
        for number in range(25):
            event_id = rick.say(room, f"{number} {stage.words()}")
            if number % 8 == 4:
                rick.redact(room, event_id)
            if number % 10 == 5:
                rosa.set_display_name(f"Rosa {version} {number}")
        rick.moderate("kick", room, rosa)
        rosa.join(room)
        for guest in stage.cast("bob", "peggy"):
            _retry(partial(guest.join, room, params={"server_name": remote.server_name}))
        stage.chat(room, ["bob", "peggy"], 4)
        _wait_for_event(stage.users["bob"], room, rick.say(room, "welcome"))
        if version != "11":
            _read_backwards(stage.users["bob"], room, pages=4 if version == "10" else 2)
        if version == "10":
            # Only this server purges the events. Another backfill adds them with new stream IDs.
            purge_history(stage.users[ADMINISTRATOR], room, stage.users["bob"].say(room, "nothing before this"))
            stage.note("purged and filled in again", room)
            _read_backwards(stage.users["bob"], room, pages=4)
        stage.users["peggy"].leave(room)


def _invite_from_remote(stage: Stage, rick: Client) -> None:
    """Invite local users to an unknown remote room: one declines, one does not respond."""
    room = rick.create_room(preset="private_chat", name="come over")
    stage.note("invited from elsewhere", room)
    carol, dave = stage.cast("carol", "dave")
    rick.invite(room, carol, dave)
    _retry(partial(carol.leave, room))


def _soft_fail_events(stage: Stage, rosa: Client) -> None:
    """Ban a remote user while the user sends messages. Messages that arrive after the ban are soft-failed."""
    frank = stage.users["frank"]
    room = stage.room("soft-failed", "frank", room_version="11", state=[visibility("shared")])
    for _ in range(ATTEMPTS):
        frank.invite(room, rosa)
        _retry(partial(rosa.join, room, params=_via_local_server(stage)))
        _wait_for_event(frank, room, rosa.say(room, "I am here"))

        def send_message(number: int) -> str | None:
            with contextlib.suppress(MatrixError):
                return rosa.say(room, f"before I am gone {number}")
            return None

        with ThreadPoolExecutor(4) as executor:
            futures = [executor.submit(send_message, number) for number in range(16)]
            frank.moderate("ban", room, rosa)
            events = [event for future in futures if (event := future.result())]
        time.sleep(3)
        missing = [event for event in events if not _can_read(frank, room, event)]
        frank.moderate("unban", room, rosa)
        if missing:
            stage.note("soft-failed or lost", *missing)
            return


def _via_local_server(stage: Stage) -> dict[str, str]:
    return {"server_name": stage.hs.server_name}


def _read_backwards(client: Client, room: str, pages: int) -> None:
    token = None
    for _ in range(pages):
        params = {"dir": "b", "limit": "10"} | ({"from": token} if token else {})
        token = client.call("GET", f"{V3}/rooms/{q(room)}/messages", params=params).get("end")
        if not token:
            return


def _can_read(client: Client, room: str, event: str) -> bool:
    try:
        client.call("GET", f"{V3}/rooms/{q(room)}/event/{q(event)}")
    except MatrixError as error:
        if error.errcode not in ("M_NOT_FOUND", "M_FORBIDDEN"):
            raise
        return False
    return True


def _wait_for_event(client: Client, room: str, event: str) -> None:
    """Wait until ``client``'s homeserver has ``event``."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _can_read(client, room, event):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{event} did not arrive within {PATIENCE_SECONDS} s; see the homeservers' logs")
        time.sleep(0.2)


def _retry(action: Callable[[], None]) -> None:
    """Retry a request while the other homeserver refuses it, up to PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return action()
        except MatrixError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
