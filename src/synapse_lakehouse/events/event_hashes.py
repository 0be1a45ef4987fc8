"""Whether an event's stored JSON still is what its sender's server hashed and signed. Pure.

Two hashes say so: from room version 3 on the event id is the hash of the event's redacted form, which never changes;
and ``hashes.sha256`` is the hash of all that was sent, which a redaction ends. Both are as the server-server API of
Matrix defines them.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from canonicaljson import encode_canonical_json

from synapse_lakehouse.events.redaction import ROOM_VERSION_RULES, redact

HASH_VERDICTS: Final = {
    "intact": "Both hashes hold: this is what was sent.",
    "pruned": "The id holds, and what is left is the redacted form: the content was removed, here or elsewhere.",
    "altered": "It is not what its id or its hash stands for, and not its redacted form either.",
    "not_hashed": "Nothing could be recomputed.",
    "no_json": "No JSON is stored.",
}

HASH_REASONS: Final = {
    "event_id": "The hash of the redacted form is not the event id.",
    "content": "The content's hash is not hashes.sha256, and the content is not the redacted one.",
    "room_id": "The room's id is not the hash of its creation event.",
    "not_an_event": "It is no JSON object with a type and a content.",
    "unknown_version": "The room's version is not known.",
    "not_canonical": "It holds what has no canonical form, such as half a surrogate pair or a number that is none.",
    "no_content_hash": "The event has no hashes.sha256.",
}
"""Why a verdict is ``altered`` (the first four) or ``not_hashed`` (the others)."""

# What is no part of the hashes: added by those who hand an event on.
_NOT_CONTENT: Final = frozenset({"age_ts", "unsigned", "signatures", "hashes", "outlier", "destinations"})
_NOT_REFERENCE: Final = frozenset({"age_ts", "unsigned", "signatures"})
# Where a room's version is not stored, its events' format says it if there is no choice.
_RULES_OF_FORMAT: Final = {None: 1, 1: 1, 2: 3, 4: 12, 5: 13}


class HashVerdict(NamedTuple):
    """A key of :data:`HASH_VERDICTS` and, where it is ``altered`` or ``not_hashed``, one of :data:`HASH_REASONS`."""

    verdict: str
    reason: str | None = None


def verify_event(
    event: Mapping[str, Any] | None,
    event_id: str,
    room_id: str | None,
    room_version: str | None,
    format_version: int | None,
) -> HashVerdict:
    """What a stored event proves. Room versions 1 and 2 give ids freely, so only the content's hash counts.

    :param event: the stored JSON, parsed; None where it is no object.
    :param room_id: the room that the event is kept for.
    :param format_version: of ``event_json``; used where ``room_version`` is not known to the database.
    """
    rules = ROOM_VERSION_RULES.get(room_version) if room_version else _RULES_OF_FORMAT.get(format_version)
    if rules is None:
        return HashVerdict("not_hashed", "unknown_version")
    if event is None or not isinstance(event.get("type"), str) or "content" not in event:
        return HashVerdict("altered", "not_an_event")
    try:
        return _compare(event, event_id, room_id, rules)
    except (ValueError, RecursionError):
        return HashVerdict("not_hashed", "not_canonical")


def matches_event_id(event: Mapping[str, Any], event_id: str, rules: int) -> bool:
    """Whether ``event_id`` is the hash of the event's redacted form, in a room with ``rules`` from 3 on."""
    return compute_event_id(redact(event, rules), rules) == event_id


def _compare(event: Mapping[str, Any], event_id: str, room_id: str | None, rules: int) -> HashVerdict:
    if rules >= 3 and not matches_event_id(event, event_id, rules):
        return HashVerdict("altered", "event_id")
    if rules >= 12 and event["type"] == "m.room.create" and (room_id or "")[1:] != event_id[1:]:
        return HashVerdict("altered", "room_id")
    told, found = _told(event), compute_content_hash(event)
    if told is None:
        return HashVerdict("not_hashed", "no_content_hash")
    if told == found:
        return HashVerdict("intact")
    return HashVerdict("pruned") if _is_pruned(event, rules) else HashVerdict("altered", "content")


def _is_pruned(event: Mapping[str, Any], rules: int) -> bool:
    """Whether a redaction would take nothing away from what is hashed."""
    pruned = redact(event, rules)
    return pruned["content"] == event["content"] and event.keys() - _NOT_CONTENT == pruned.keys() - _NOT_CONTENT


def compute_event_id(pruned: Mapping[str, Any], rules: int) -> str:
    """The id of an event by its redacted form, as room versions from 3 on have it."""
    digest = hashlib.sha256(_canonical(pruned, _NOT_REFERENCE)).digest()
    encoded = base64.b64encode(digest) if rules == 3 else base64.urlsafe_b64encode(digest)
    return "$" + encoded.decode().rstrip("=")


def compute_content_hash(event: Mapping[str, Any]) -> bytes:
    """SHA-256 of all that was sent."""
    return hashlib.sha256(_canonical(event, _NOT_CONTENT)).digest()


def _told(event: Mapping[str, Any]) -> bytes | None:
    """The content's hash as the event itself says it; None where it says none."""
    hashes = event.get("hashes")
    told = hashes.get("sha256") if isinstance(hashes, Mapping) else None
    try:
        return base64.b64decode(told + "=" * (-len(told) % 4)) if isinstance(told, str) else None
    except ValueError:
        return None


def _canonical(event: Mapping[str, Any], without: frozenset[str]) -> bytes:
    encoded: bytes = encode_canonical_json({key: value for key, value in event.items() if key not in without})
    return encoded
