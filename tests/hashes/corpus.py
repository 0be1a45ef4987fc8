"""Synthetic events on which room versions can differ: all keys that a version retains, and unusual shapes."""

from collections.abc import Iterator
from typing import Any, Final

TOP_LEVEL: Final = {
    "auth_events": ["$auth"],
    "depth": 7,
    "hashes": {"sha256": "x"},
    "membership": "join",
    "origin": "example.org",
    "origin_server_ts": 1,
    "prev_events": ["$before"],
    "prev_state": [],
    "redacts": "$target",
    "room_id": "!room:example.org",
    "sender": "@a:example.org",
    "signatures": {"example.org": {"ed25519:1": "x"}},
    "state_key": "",
    # Keys that are in no hash, keys that are in one of the hashes, and a key that no specification defines.
    "age_ts": 5,
    "unsigned": {"age_ts": 5, "age": 5},
    "outlier": True,
    "destinations": ["example.org"],
    "prev_state_events": ["$state"],
    "msc4354_sticky": {"duration_ms": 1},
    "unheard.of": "word",
}

REQUIRED_KEYS: Final = frozenset(
    ("auth_events", "depth", "hashes", "origin_server_ts", "prev_events", "room_id", "sender", "signatures")
)

CONTENT: Final = {
    "membership": "join",
    "join_authorised_via_users_server": "@b:example.org",
    "third_party_invite": {"signed": {"token": "t"}, "display_name": "B"},
    "creator": "@a:example.org",
    "room_version": "1",
    "additional_creators": ["@b:example.org"],
    "m.federate": False,
    "predecessor": {"room_id": "!old:example.org"},
    "join_rule": "restricted",
    "allow": [{"type": "m.room_membership"}],
    "ban": 50,
    "events": {"m.room.name": 50},
    "events_default": 0,
    "invite": 50,
    "kick": 50,
    "notifications": {"room": 50},
    "redact": 50,
    "state_default": 50,
    "users": {"@a:example.org": 100},
    "users_default": 0,
    "aliases": ["#a:example.org"],
    "history_visibility": "shared",
    "redacts": "$target",
    "m.relates_to": {"rel_type": "m.thread", "event_id": "$target"},
    "deny": ["example.com"],
    "body": 'wörds "\\ \u2028\u0007 \U0001f600 <&>',
    "numbers": [0, -1, 2**53, -(2**63), 1.5, 1e30, 1e-7, -0.0],
    "": None,
}

TYPES: Final = (
    "m.room.create",
    "m.room.member",
    "m.room.join_rules",
    "m.room.power_levels",
    "m.room.aliases",
    "m.room.history_visibility",
    "m.room.redaction",
    "m.room.message",
    "m.room.name",
    "m.room.server_acl",
    "m.room.third_party_invite",
    "",
)


# In the room version of MSC4242, events do not list their auth events.
WITHOUT_AUTH: Final = {key: value for key, value in TOP_LEVEL.items() if key != "auth_events"}


def events() -> Iterator[dict[str, Any]]:
    """Yield each type with all keys and with the required keys only, then events that Synapse rejects."""
    for top in (TOP_LEVEL, WITHOUT_AUTH):
        # From room version 12 on, the creation event has no room ID, because the room ID is its hash.
        without_room_id = {key: value for key, value in top.items() if key != "room_id"}
        yield {**without_room_id, "type": "m.room.create", "content": CONTENT}
        yield from ({**top, "type": type_, "content": CONTENT} for type_ in TYPES)
    for type_ in TYPES:
        yield {key: value for key, value in TOP_LEVEL.items() if key in REQUIRED_KEYS} | {"type": type_, "content": {}}
    invites: tuple[Any, ...] = ("word", [], {}, {"display_name": "B"}, {"signed": "word"})
    for invite in invites:
        yield {**TOP_LEVEL, "type": "m.room.member", "content": {"third_party_invite": invite}}
    contents: tuple[Any, ...] = ("word", [], 5, None)
    for content in contents:
        for type_ in ("m.room.create", "m.room.message"):
            yield {**TOP_LEVEL, "type": type_, "content": content}
    yield {"type": "m.room.message", "content": {}}
