"""Kinds of events: redactions, edits, reactions, threads, calls, sticky and delayed ones, and unusual JSON."""

import time
from concurrent.futures import ThreadPoolExecutor

from sample.client import UNSTABLE, V3, Client, Json, MatrixError, q
from sample.traffic.stage import Stage, visibility

HOUR_MS = 3_600_000
ATTEMPTS = 20
UNKNOWN_EVENT = "$neverSeenByAnybody-AAAAAAAAAAAAAAAAAAAAAAAA"


def redactions(stage: Stage) -> None:
    """Redacted messages, reactions, state and redactions; the same one twice; targets that are missing."""
    for version in ("1", "10", "12"):
        room = stage.room("redactions", "heidi", room_version=version)
        stage.enter(room, "heidi", "ivan", "judy")
        host, ivan, judy = stage.cast("heidi", "ivan", "judy")
        said = stage.chat(room, ["ivan", "judy"], 14)
        own = ivan.say(room, "I take this back")
        ivan.redact(room, own)
        for event in said[2:5]:
            host.redact(room, event, stage.words())
        reaction = judy.send(room, "m.reaction", relation("m.annotation", said[6], key="👍"))
        judy.redact(room, reaction)
        topic = host.set_state(room, "m.room.topic", {"topic": "a secret"})
        host.redact(room, topic)
        value = host.set_state(room, "m.room.history_visibility", {"history_visibility": "joined", "note": "gone"})
        stage.chat(room, ["ivan", "judy"], 3)
        host.redact(room, value)
        renamed = {"membership": "join", "displayname": "embarrassing"}
        host.redact(room, judy.set_state(room, "m.room.member", renamed, judy.user_id))
        host.redact(room, host.redact(room, said[7]))  # the redaction itself
        host.redact(room, said[7], "twice")
        host.redact(room, UNKNOWN_EVENT)
        if version == "12":  # where the target stands in the content
            host.send(room, "m.room.redaction", {"redacts": said[8], "reason": "in the content"})
        stage.chat(room, ["heidi", "ivan", "judy"], 8)


def relations(stage: Stage) -> None:
    """Edits, reactions, threads with edits in them, references, polls, and subscriptions to threads."""
    room = stage.room("relations", "carol", room_version="11")
    stage.enter(room, "carol", "dave", "frank")
    names = ("carol", "dave", "frank")
    messages = stage.chat(room, names, 10)
    carol, dave, frank = stage.cast(*names)
    for number in range(4):
        edit_of(stage, room, dave.say(room, "tpyo"), dave, f"typo {number}")
    for key in ("👍", "👎", "❤️", "+1", ""):
        frank.send(room, "m.reaction", relation("m.annotation", messages[1], key=key))
    frank.send(room, "m.room.message", {"msgtype": "m.text", "body": "ref"} | relation("m.reference", messages[2]))
    roots = [carol.say(room, f"thread {number} ✳") for number in range(4)]
    for root in roots:
        for speaker in (dave, frank, carol, dave):
            content = {"msgtype": "m.text", "body": stage.words()} | relation("m.thread", root)
            reply = speaker.send(room, "m.room.message", content)
        edit_of(stage, room, reply, dave, "edited in the thread")
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


def edit_of(stage: Stage, room: str, event: str, author: Client, body: str) -> str:
    """An edit of ``event`` by its author; returns the edit's event id."""
    new = {"msgtype": "m.text", "body": body}
    content = {"msgtype": "m.text", "body": f"* {body}", "m.new_content": new} | relation("m.replace", event)
    return author.send(room, "m.room.message", content)


def relation(kind: str, event: str, **more: str) -> Json:
    """The content that relates an event to ``event``."""
    return {"m.relates_to": {"rel_type": kind, "event_id": event} | more}


def calls(stage: Stage) -> None:
    """Call invites in a room that was public before, and in one that had just become public."""
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
    # The homeserver refuses calls in a public room, but learns from its statistics, a moment later, that it is public:
    # calls that race with the change through several processes get in.
    host = stage.users["niaj"]

    def call(via: str) -> str | None:
        try:
            return host.send(room, "m.call.invite", invite, via=via)
        except MatrixError as refusal:
            if refusal.errcode != "M_FORBIDDEN":
                raise
            return None

    for _ in range(ATTEMPTS):
        with ThreadPoolExecutor(6) as callers:
            racing = [callers.submit(call, via) for via in (*stage.hs.event_persisters, *stage.hs.event_persisters)]
            host.set_state(room, "m.room.join_rules", {"join_rule": "public"}, via=stage.hs.event_persisters[0])
            racing += [callers.submit(call, via) for via in stage.hs.event_persisters]
        events = [event for caller in racing if (event := caller.result())]
        if any(_is_in_public(host, room, event) for event in events):
            stage.note("call invite in public", room)
            return
        host.set_state(room, "m.room.join_rules", {"join_rule": "invite"})
        time.sleep(1)
    raise RuntimeError(f"No call could be placed in a public room in {ATTEMPTS} attempts")


def _is_in_public(client: Client, room: str, event: str) -> bool:
    """Whether the room is public at a call of ``client``. Synapse since 1.144 hides the call even from its sender."""
    try:
        context = client.call("GET", f"{V3}/rooms/{q(room)}/context/{q(event)}", params={"limit": "0"})
    except MatrixError as refusal:
        if refusal.errcode != "M_FORBIDDEN":
            raise
        return True
    rules = [state["content"] for state in context["state"] if state["type"] == "m.room.join_rules"]
    return rules == [{"join_rule": "public"}]


def sticky_and_delayed(stage: Stage) -> None:
    """Sticky events (MSC4354) and delayed ones (MSC4140), one sent, one waiting, one cancelled."""
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
    """Content that breaks careless readers: empty, nested, huge, quoted, with NUL and with every kind of number."""
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
            # Messages must have a text body; other events may hold anything.
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
