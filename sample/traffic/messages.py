"""Scenes with kinds of events: redactions, relations, threads, calls, sticky and delayed events, and unusual JSON."""

import time
from concurrent.futures import ThreadPoolExecutor

from sample.client import UNSTABLE, V3, Client, Json, MatrixError, q
from sample.traffic.stage import Stage, visibility

HOUR_MS = 3_600_000
ATTEMPTS = 20
UNKNOWN_EVENT = "$neverSeenByAnybody-AAAAAAAAAAAAAAAAAAAAAAAA"


def redactions(stage: Stage) -> None:
    """Redact messages, reactions, state and redactions, the same event twice, and an unknown event."""
    for version in ("1", "10", "12"):
        room = stage.room("redactions", "heidi", room_version=version)
        stage.enter(room, "heidi", "ivan", "judy")
        host, ivan, judy = stage.cast("heidi", "ivan", "judy")
        messages = stage.chat(room, ["ivan", "judy"], 14)
        own_message = ivan.say(room, "I take this back")
        ivan.redact(room, own_message)
        for event in messages[2:5]:
            host.redact(room, event, stage.words())
        reaction = judy.send(room, "m.reaction", relation("m.annotation", messages[6], key="👍"))
        judy.redact(room, reaction)
        topic = host.set_state(room, "m.room.topic", {"topic": "a secret"})
        host.redact(room, topic)
        value = host.set_state(room, "m.room.history_visibility", {"history_visibility": "joined", "note": "gone"})
        stage.chat(room, ["ivan", "judy"], 3)
        host.redact(room, value)
        renamed = {"membership": "join", "displayname": "embarrassing"}
        host.redact(room, judy.set_state(room, "m.room.member", renamed, judy.user_id))
        host.redact(room, host.redact(room, messages[7]))  # the redaction itself
        host.redact(room, messages[7], "twice")
        host.redact(room, UNKNOWN_EVENT)
        if version == "12":  # redactions have their target in the content
            host.send(room, "m.room.redaction", {"redacts": messages[8], "reason": "in the content"})
        stage.chat(room, ["heidi", "ivan", "judy"], 8)


def relations(stage: Stage) -> None:
    """Send edits, reactions, threads with edits, references and polls, and subscribe to threads."""
    room = stage.room("relations", "carol", room_version="11")
    stage.enter(room, "carol", "dave", "frank")
    names = ("carol", "dave", "frank")
    messages = stage.chat(room, names, 10)
    carol, dave, frank = stage.cast(*names)
    for number in range(4):
        send_edit(stage, room, dave.say(room, "tpyo"), dave, f"typo {number}")
    for key in ("👍", "👎", "❤️", "+1", ""):
        frank.send(room, "m.reaction", relation("m.annotation", messages[1], key=key))
    frank.send(room, "m.room.message", {"msgtype": "m.text", "body": "ref"} | relation("m.reference", messages[2]))
    roots = [carol.say(room, f"thread {number} ✳") for number in range(4)]
    for root in roots:
        for speaker in (dave, frank, carol, dave):
            content = {"msgtype": "m.text", "body": stage.words()} | relation("m.thread", root)
            reply = speaker.send(room, "m.room.message", content)
        send_edit(stage, room, reply, dave, "edited in the thread")
        dave.receipt(room, reply, thread=root)
    carol.receipt(room, roots[-1], thread="main")
    carol.redact(room, reply)
    poll = {"org.matrix.msc3381.poll.start": {"question": {"body": "?"}, "answers": [{"id": "a"}, {"id": "b"}]}}
    start = frank.send(room, "org.matrix.msc3381.poll.start", poll)
    dave.send(room, "org.matrix.msc3381.poll.response", {"answers": ["a"]} | relation("m.reference", start))
    for subscriber, root in ((carol, roots[0]), (dave, roots[0]), (frank, roots[1]), (frank, roots[2])):
        path = f"{UNSTABLE}/io.element.msc4306/rooms/{q(room)}/thread/{q(root)}/subscription"
        subscriber.call("PUT", path)
    frank.call("DELETE", path)
    frank.call("DELETE", f"{UNSTABLE}/io.element.msc4306/rooms/{q(room)}/thread/{q(roots[1])}/subscription")
    stage.note("thread subscriptions", carol.user_id, dave.user_id, frank.user_id)


def send_edit(stage: Stage, room: str, event: str, author: Client, body: str) -> str:
    """Send an edit of ``event`` by its author; return the edit's event ID."""
    new = {"msgtype": "m.text", "body": body}
    content = {"msgtype": "m.text", "body": f"* {body}", "m.new_content": new} | relation("m.replace", event)
    return author.send(room, "m.room.message", content)


def relation(kind: str, event: str, **fields: str) -> Json:
    """Return the content that relates an event to ``event``."""
    return {"m.relates_to": {"rel_type": kind, "event_id": event} | fields}


def calls(stage: Stage) -> None:
    """Send call invites to private rooms, and to rooms that have just become public."""
    invite = {"call_id": "1", "version": "1", "lifetime": 60_000, "offer": {"type": "offer", "sdp": "v=0"}}
    for history in ("shared", "world_readable"):
        room = stage.room("calls", "niaj", state=[visibility(history)], room_version="11")
        stage.enter(room, "niaj", "olivia")
        niaj, olivia = stage.cast("niaj", "olivia")
        for number in range(3):
            niaj.send(room, "m.call.invite", invite | {"call_id": str(number)})
            olivia.send(room, "m.call.answer", {"call_id": str(number), "version": "1"})
            niaj.send(room, "m.call.hangup", {"call_id": str(number), "version": "1"})
        _call_in_public(stage, room, invite)
        niaj.set_state(room, "m.room.join_rules", {"join_rule": "invite"})
        stage.chat(room, ["niaj", "olivia"], 4)


def _call_in_public(stage: Stage, room: str, invite: Json) -> None:
    # The homeserver refuses calls in public rooms. It reads from its statistics whether a room is public, and updates
    # them a moment after the change. Calls in this moment, through several processes, are accepted.
    host = stage.users["niaj"]

    def call(via: str) -> str | None:
        try:
            return host.send(room, "m.call.invite", invite, via=via)
        except MatrixError as error:
            if error.errcode != "M_FORBIDDEN":
                raise
            return None

    for _ in range(ATTEMPTS):
        with ThreadPoolExecutor(6) as executor:
            futures = [executor.submit(call, via) for via in (*stage.hs.event_persisters, *stage.hs.event_persisters)]
            host.set_state(room, "m.room.join_rules", {"join_rule": "public"}, via=stage.hs.event_persisters[0])
            futures += [executor.submit(call, via) for via in stage.hs.event_persisters]
        events = [event for future in futures if (event := future.result())]
        if any(_is_in_public(host, room, event) for event in events):
            stage.note("call invite in public", room)
            return
        host.set_state(room, "m.room.join_rules", {"join_rule": "invite"})
        time.sleep(1)
    raise RuntimeError(f"The homeserver accepted no call in a public room in {ATTEMPTS} attempts")


def _is_in_public(client: Client, room: str, event: str) -> bool:
    """Return whether the room is public at a call of ``client``. Synapse since 1.144 hides the call from its sender."""
    try:
        context = client.call("GET", f"{V3}/rooms/{q(room)}/context/{q(event)}", params={"limit": "0"})
    except MatrixError as error:
        if error.errcode != "M_FORBIDDEN":
            raise
        return True
    rules = [state["content"] for state in context["state"] if state["type"] == "m.room.join_rules"]
    return rules == [{"join_rule": "public"}]


def sticky_and_delayed(stage: Stage) -> None:
    """Send sticky events (MSC4354) and delayed events (MSC4140): one is sent, one waits, one is cancelled."""
    for _ in range(2):
        room = stage.room("sticky", "quentin", room_version="11")
        stage.enter(room, "quentin", "rupert")
        sticky = {"org.matrix.msc4354.sticky_duration_ms": str(HOUR_MS)}
        for number in range(6):
            content = {"msgtype": "m.text", "body": f"sticks {number}"}
            stage.users["quentin"].send(room, "m.room.message", content, params=sticky)
            stage.chat(room, ["rupert"], 1)
    delayed = {"org.matrix.msc4140.delay": str(20 * HOUR_MS)}
    path = f"{V3}/rooms/{q(room)}/send/m.room.message"
    ids = [
        stage.users["quentin"].call("PUT", f"{path}/d{number}", {"msgtype": "m.text", "body": "later"}, params=delayed)[
            "delay_id"
        ]
        for number in range(3)
    ]
    manage = f"{UNSTABLE}/org.matrix.msc4140/delayed_events"
    stage.users["quentin"].call("POST", f"{manage}/{q(ids[0])}/send")
    stage.users["quentin"].call("POST", f"{manage}/{q(ids[1])}/cancel")


def unusual_json(stage: Stage) -> None:
    """Send unusual content: empty, nested, large, with quotes, with NUL and with all kinds of numbers."""
    contents: list[Json] = [
        {},
        {"": ""},
        {"body": "", "msgtype": ""},
        {"body": None, "msgtype": ["m.text"], "formatted_body": {}},
        {"body": "\u0000 NUL \u0001\u001f\u007f", "msgtype": "m.text"},
        {"body": "a\"b'c\\d\\u0041\te\r\nf", "msgtype": "m.text"},
        {"body": "\ufeff\u2028\u2029\u202e\uffff\U0010ffff", "msgtype": "m.text"},
        {"body": "x" * 50_000, "msgtype": "m.text"},
        {"deep": {"a": [{"b": [[[[{"c": None}]]]]}]}, "body": "deep", "msgtype": "m.text"},
        {"n": [0, -1, 2**53 - 1, -(2**53) + 1, True, False, None], "body": "numbers", "msgtype": "m.text"},
        {"$$": "$1", "a.b": "a", "a\\.b": "b", "{}": "c", "%s": "d", "body": "keys", "msgtype": "m.text"},
        {"history_visibility": "joined", "membership": "ban", "body": "misleading", "msgtype": "m.text"},
        {"m.relates_to": "not an object", "body": "", "msgtype": "m.text"},
        {"m.relates_to": {"rel_type": 7, "event_id": []}, "body": "", "msgtype": "m.text"},
    ]
    old_numbers: Json = {"numbers": [{"float": 1.5, "tiny": 1e-7, "huge": 1e300, "large": 2**70, "negative": -0.0}]}
    types = ("m.room.message", "org.example.ünï", "a b", "$$", "'; --", "x" * 200)
    keys = ("", "🎈", "with space", "$$", "back\\slash", "a/b", "'quoted\"", "x" * 200, "_underscore", "ÅÅ")
    for version in ("1", "11"):
        room = stage.room("unusual-json", "odd.user=1_2-3/4", room_version=version)
        stage.enter(room, "odd.user=1_2-3/4", "lena")
        author = stage.users["odd.user=1_2-3/4"]
        for content in contents if version == "11" else [*contents, old_numbers]:
            # Messages must have a text body. Other events may have any content.
            is_message = isinstance(content.get("body"), str) and isinstance(content.get("msgtype"), str)
            author.send(room, "m.room.message" if is_message else "org.example.odd", content)
        for event_type in types:
            stage.users["lena"].send(room, event_type, {"body": event_type, "msgtype": "m.text"})
            author.set_state(room, event_type, {"": [], "body": event_type, "msgtype": "m.text"})
        for key in keys:
            author.set_state(room, "org.example.key", {"key": key}, key)
        author.set_state(room, "m.room.name", {"name": ""})
        author.set_state(room, "m.room.avatar", {"url": None, "info": []})
        author.set_display_name("")
        author.set_display_name("ó\u200bdd \u202e 😀")
        stage.chat(room, ["odd.user=1_2-3/4", "lena"], 4)
