"""Events on which room versions may differ: every key that a version retains, and unusual shapes."""

from collections.abc import Iterator
from typing import Any, Final

TOP: Final = {
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
    # What is in no hash, what is in one of them, and what no specification knows.
    "age_ts": 5,
    "unsigned": {"age_ts": 5, "age": 5},
    "outlier": True,
    "destinations": ["example.org"],
    "prev_state_events": ["$state"],
    "msc4354_sticky": {"duration_ms": 1},
    "unheard.of": "word",
}

NEEDED: Final = frozenset(
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


# Where the state graph contains the auth events, the event does not list them.
WITHOUT_AUTH: Final = {key: value for key, value in TOP.items() if key != "auth_events"}


def events() -> Iterator[dict[str, Any]]:
    """Each type with every key, and with none that Synapse can do without; then what Synapse takes for no event."""
    for top in (TOP, WITHOUT_AUTH):
        # Where a room's id is the hash of its creation event, that event cannot name it.
        nameless = {key: value for key, value in top.items() if key != "room_id"}
        yield {**nameless, "type": "m.room.create", "content": CONTENT}
        yield from ({**top, "type": type_, "content": CONTENT} for type_ in TYPES)
    for type_ in TYPES:
        yield {key: value for key, value in TOP.items() if key in NEEDED} | {"type": type_, "content": {}}
    invites: tuple[Any, ...] = ("word", [], {}, {"display_name": "B"}, {"signed": "word"})
    for invite in invites:
        yield {**TOP, "type": "m.room.member", "content": {"third_party_invite": invite}}
    contents: tuple[Any, ...] = ("word", [], 5, None)
    for content in contents:
        for type_ in ("m.room.create", "m.room.message"):
            yield {**TOP, "type": type_, "content": content}
    yield {"type": "m.room.message", "content": {}}
