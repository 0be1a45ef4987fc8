"""Generate unusual rows of ``event_json``: valid events of all room versions with a few random changes."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from synapse_lakehouse.events import event_hashes, redaction
from synapse_lakehouse.events.load_stored_event import FORMAT_OF_ROOM_VERSION

UNKNOWN = "org.example.unknown"
VERSIONS = (*FORMAT_OF_ROOM_VERSION, UNKNOWN, "", None)
"""Room versions in the table ``rooms``. None: the room has no row."""

TYPES = (
    "m.room.message", "m.room.member", "m.room.create", "m.room.history_visibility", "m.room.join_rules",
    "m.room.redaction", "m.room.power_levels", "m.room.name", "m.room.aliases", "org.example.any",
)  # fmt: skip
CONTENT = {
    "m.room.message": {"body": "wörds \u2028 \U0001f600", "msgtype": "m.text"},
    "m.room.member": {"membership": "join", "displayname": "A"},
    "m.room.create": {"creator": "@a:x.example", "room_version": "10"},
    "m.room.history_visibility": {"history_visibility": "joined"},
    "m.room.join_rules": {"join_rule": "public", "allow": []},
    "m.room.redaction": {"redacts": "$target", "reason": "why"},
    "m.room.power_levels": {"users": {"@a:x.example": 100}, "ban": 50, "events": {}},
    "m.room.name": {"name": "Name"},
    "m.room.aliases": {"aliases": ["#a:x.example"]},
    "org.example.any": {},
}
KEYS = (
    "auth_events", "content", "depth", "event_id", "hashes", "origin_server_ts", "prev_events", "prev_state_events",
    "redacts", "room_id", "sender", "signatures", "state_key", "type", "unsigned", "origin", "membership",
)  # fmt: skip
UNSIGNED = ("age_ts", "replaces_state", "prev_content", "prev_sender", "invite_room_state", "knock_room_state", "age")
NESTED_KEYS = {
    "unsigned": UNSIGNED,
    "hashes": ("sha256", "md5"),
    "signatures": ("x.example", "y.example"),
    "content": (
        "users", "ban", "events", "membership", "history_visibility", "join_rule", "redacts", "creator",
        "third_party_invite", "a",
    ),
}  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 5, 1.5, -0.0, 1e30, 5.0, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63),
    -(2**63) - 1, 10**40, "", "5", "a", "$a", "!a", "join", "nul\0", "\ud800", "\udc00\ud800", "\ud83d\ude00", "ö", [],
    ["$a"], [5], [None], [["$a", {}]], [["$a", {"sha256": "x"}]], [["$a", 5]], [["$a", 1.5]], [["$a"]],
    [["$a", {}, 1]], [{}], {}, {"a": "b"}, {"a": 5}, {"a": {}}, {"a": {"b": "c"}}, {"a": {"b": 5}}, {"a": None},
    {"a": 1.5}, {"membership": "leave"}, {"membership": 5}, {"history_visibility": ["x"]},
)  # fmt: skip
FLAGS = (
    "soft_failed", "out_of_band_membership", "recheck_redaction", "redacted", "policy_server_spammy",
    "proactively_send", "spam_checker_spammy", "send_on_behalf_of", "txn_id", "delay_id", "token_id", "device_id",
    "calculated_auth_event_ids", "unheard_of",
)  # fmt: skip
METADATA = (
    "", "{", "null", "[]", "0", '""', "false", "5", '"x"', "[1]", "true", "1e999", "NaN", '{"soft_failed":tru',
    '{"soft_failed": NaN}', '{"a": Infinity, "soft_failed": true}', '{"soft_failed": true} ', '{"soft_failed": true}x',
    '{"soft_failed": false, "soft_failed": true}', '{"soft_failed": true, "soft_failed": "true"}', '{"\\ud800": true}',
    '{"txn_id": "\\ud800", "redacted": true}', '{"soft_failed": 1e999, "redacted": true}', r"\x7b7d", "\ufeff{}",
    '{"a": ' + "9" * 5000 + "}", "[" * 120 + "]" * 120, '{"a":' + "[" * 300 + "]" * 300 + ', "soft_failed": true}',
)  # fmt: skip


class Row(NamedTuple):
    """A row of ``event_json`` and the version of its room."""

    event_id: str
    room_id: str
    json: str
    internal_metadata: str | None
    format_version: int | None
    room_version: str | None


def rows(number: int, seed: str) -> Iterator[Row]:
    """Yield ``number`` rows with different event IDs. The same seed yields the same rows."""
    event_ids: set[str] = set()
    chance = random.Random(seed)
    while len(event_ids) < number:
        row = _row(chance, len(event_ids), seed)
        if row.event_id not in event_ids:
            event_ids.add(row.event_id)
            yield row


def room_of(version: str | None) -> str:
    """Return the ID of the room with this version."""
    return f"!of_{version}:x.example"


def _row(chance: random.Random, number: int, seed: str) -> Row:
    version = chance.choice(VERSIONS)
    form = FORMAT_OF_ROOM_VERSION.get(version or "", chance.choice([None, 1, 2, 3, 4, 5, 99]))
    rules = redaction.ROOM_VERSION_RULES.get(version or "") or {None: 1, 1: 1, 2: 3}.get(form, 5)
    event = _valid_event(chance, number, seed, version, rules)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        chance.choice(CHANGES)(chance, event)
    event_id = _event_id(chance, event, number, seed, rules)
    text = _serialize(chance, event)
    if chance.random() < 0.25:
        text = chance.choice(TEXT_CHANGES)(chance, text)
    if form == 1 and chance.random() < 0.3:
        form = None
    elif chance.random() < 0.05:
        form = chance.choice([None, 0, 1, 2, 3, 4, 5, 6])
    return Row(event_id, room_of(version), text, _metadata(chance), form, version)


def _valid_event(chance: random.Random, number: int, seed: str, version: str | None, rules: int) -> dict[str, Any]:
    type_ = chance.choice(TYPES)
    event: dict[str, Any] = {
        "content": json.loads(json.dumps(CONTENT[type_])),
        "depth": number,
        "hashes": {"sha256": "aGFzaA"},
        "origin_server_ts": 1_700_000_000_000 + number,
        "sender": "@a:x.example",
        "signatures": {"x.example": {"ed25519:a": "c2lnbmF0dXJl"}},
        "type": type_,
        "unsigned": {"age_ts": 5},
    }
    references = [["$before", {"sha256": "x"}]] if rules < 3 else ["$before"]
    event["prev_events"] = references
    event["auth_events" if rules <= 12 else "prev_state_events"] = references
    if rules < 3:
        event["event_id"] = f"${seed}_{number}:x.example"
    if type_ not in ("m.room.message", "m.room.redaction"):
        event["state_key"] = "@a:x.example" if type_ == "m.room.member" else ""
        if chance.random() < 0.5:
            event["unsigned"] |= {"replaces_state": "$former", "prev_content": {"membership": "invite"}}
    if rules < 12 or type_ != "m.room.create":
        event["room_id"] = room_of(version)
    if type_ == "m.room.redaction":
        event["redacts"] = "$other"
    return event


def _event_id(chance: random.Random, event: dict[str, Any], number: int, seed: str, rules: int) -> str:
    """Return the event's ID. A few events, and events without a computable ID, get an ID that is not theirs."""
    if chance.random() < 0.04:
        return f"$other_{seed}_{number}:x.example"
    if rules < 3:
        return f"${seed}_{number}:x.example"
    try:
        return event_hashes.compute_event_id(redaction.redact(event, rules), rules)
    except (ValueError, KeyError, TypeError):
        return f"$none_{seed}_{number}"


def _serialize(chance: random.Random, event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=chance.random() < 0.7 or "\\ud" in json.dumps(event))


def _metadata(chance: random.Random) -> str:
    if chance.random() < 0.8:
        selected = chance.sample(FLAGS, chance.randint(0, 4))
        return json.dumps({name: chance.choice([True, False, True, *VALUES]) for name in selected})
    return chance.choice(METADATA)


def _set(chance: random.Random, event: dict[str, Any]) -> None:
    event[chance.choice(KEYS)] = chance.choice(VALUES)


def _drop(chance: random.Random, event: dict[str, Any]) -> None:
    event.pop(chance.choice(KEYS), None)


def _set_nested_key(chance: random.Random, event: dict[str, Any]) -> None:
    parent = chance.choice(list(NESTED_KEYS))
    keys = NESTED_KEYS[parent]
    if isinstance(event.get(parent), dict):
        event[parent][chance.choice(keys)] = chance.choice(VALUES)


def _set_edges(chance: random.Random, event: dict[str, Any]) -> None:
    event[chance.choice(["prev_events", "auth_events", "prev_state_events"])] = chance.choice(
        [value for value in VALUES if isinstance(value, list)]
    )


def _nest(chance: random.Random, event: dict[str, Any]) -> None:
    depth = chance.choice([120, 124, 125, 126, 127, 128, 129, 130, 200])
    nested: Any = "x"
    for _ in range(depth):
        nested = [nested] if chance.random() < 0.5 else {"a": nested}
    parent = chance.choice([event, event.get("content"), event.get("unsigned")])
    if isinstance(parent, dict):
        parent[chance.choice(["a", "prev_content", "age", "invite_room_state"])] = nested


CHANGES: tuple[Callable[[random.Random, dict[str, Any]], None], ...] = (
    _set, _set, _drop, _set_nested_key, _set_nested_key, _set_edges, _nest,
)  # fmt: skip


def _cut(chance: random.Random, text: str) -> str:
    return text[: chance.randrange(len(text))]


def _hexadecimal(_: random.Random, text: str) -> str:
    return r"\x" + text.encode("utf-8", "surrogatepass").hex()


def _number(chance: random.Random, text: str) -> str:
    number = chance.choice(
        ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "1E5", "-0", "1.0e-400", "01"]
    )
    return text.replace("{", '{"n": ' + number + ", ", chance.choice([1, 2])).replace(", }", "}")


def _repeat(chance: random.Random, text: str) -> str:
    """Add a repeated key. JSON parsers use the last value."""
    key, value = chance.choice(KEYS), json.dumps(chance.choice(VALUES))
    return f'{{"{key}": {value}, {text[1:]}' if chance.random() < 0.5 else f'{text[:-1]}, "{key}": {value}}}'


def _other(chance: random.Random, text: str) -> str:
    return chance.choice(
        ["", "null", "5", "[]", '"x"', f"[{text}]", f"\ufeff{text}", f" {text}\n", f"{text}x", text.replace('"', "'"),
         text.replace(":", ": \t"), text.replace("wörds", "tab\t"), text.replace("w", "\\ud800", 1)]
    )  # fmt: skip


TEXT_CHANGES: tuple[Callable[[random.Random, str], str], ...] = (_cut, _hexadecimal, _number, _number, _repeat, _other)
