"""The redaction algorithm of each Matrix room version: which keys of an event remain. Pure.

Matrix's specification defines the algorithm for each room version. Signatures and reference hashes are computed from
the redacted form, so the algorithm also decides whether an event matches its ID.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

ROOM_VERSION_RULES: Final = {str(number): number for number in range(1, 13)} | {
    "org.matrix.msc1767.10": 10,
    "org.matrix.msc3757.10": 10,
    "org.matrix.msc3757.11": 11,
    "org.matrix.hydra.11": 12,
    "org.matrix.msc4242.12": 13,
}
"""Number of the redaction and hash rules, by room version. A stable version is its own number. An unstable version has
the number of the stable version whose rules it uses, or 13 if its state events form a separate graph (MSC4242). These
are the room versions that Synapse 1.163 supports, by default or through ``experimental_features``."""

_ENVELOPE: Final = {"event_id", "type", "room_id", "sender", "state_key", "origin_server_ts", "content"}
_GRAPH: Final = {"hashes", "signatures", "depth", "prev_events"}
_UNTIL_10: Final = {"prev_state", "origin", "membership"}
_UNTIL_12: Final = {"auth_events"}
_FROM_13: Final = {"prev_state_events"}

# By event type: the content keys that remain, each with the first and the last rules that retain it.
_ALL, _FIRST, _LAST = "*", 1, max(ROOM_VERSION_RULES.values())
_CONTENT: Final = {
    "m.room.member": (("membership", _FIRST, _LAST), ("join_authorised_via_users_server", 9, _LAST)),
    "m.room.create": (("creator", _FIRST, 10), (_ALL, 11, _LAST)),
    "m.room.join_rules": (("join_rule", _FIRST, _LAST), ("allow", 8, _LAST)),
    "m.room.power_levels": (
        *(
            (key, _FIRST, _LAST)
            for key in ("ban", "events", "events_default", "kick", "redact", "state_default", "users", "users_default")
        ),
        ("invite", 11, _LAST),
    ),
    "m.room.aliases": (("aliases", _FIRST, 5),),
    "m.room.history_visibility": (("history_visibility", _FIRST, _LAST),),
    "m.room.redaction": (("redacts", 11, _LAST),),
}


def redact(event: Mapping[str, Any], rules: int) -> dict[str, Any]:
    """Return the redacted form of ``event``, without ``unsigned``.

    :param event: its ``type`` must be a string.
    :param rules: one of the values of :data:`ROOM_VERSION_RULES`.
    """
    keys = _retained_keys(rules, event["type"] == "m.room.create")
    redacted = {key: value for key, value in event.items() if key in keys}
    content = redacted.get("content")
    redacted["content"] = _retained_content(event["type"], content, rules) if isinstance(content, Mapping) else {}
    return redacted


@cache
def _retained_keys(rules: int, creates: bool) -> frozenset[str]:
    keys = _ENVELOPE | _GRAPH | (_UNTIL_12 if rules <= 12 else _FROM_13) | (_UNTIL_10 if rules <= 10 else set())
    # From rules 12 on, the room ID is the hash of the creation event.
    return frozenset(keys - {"room_id"} if rules >= 12 and creates else keys)


def _retained_content(type_: str, content: Mapping[str, Any], rules: int) -> dict[str, Any]:
    if type_ not in _CONTENT:
        return {}
    allowed_keys = {key for key, first, last in _CONTENT[type_] if first <= rules <= last}
    if _ALL in allowed_keys:
        return dict(content)
    redacted = {key: value for key, value in content.items() if key in allowed_keys}
    if type_ == "m.room.member" and rules >= 11 and isinstance(invite := content.get("third_party_invite"), Mapping):
        redacted["third_party_invite"] = {key: value for key, value in invite.items() if key == "signed"}
    return redacted
