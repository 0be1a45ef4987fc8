"""Verify that an event's stored JSON is the JSON that its sender's server hashed and signed. Pure.

Two hashes, which Matrix's server-server API defines, prove this. From room version 3 on, the event ID is the hash of
the event's redacted form, which never changes. ``hashes.sha256`` is the hash of the whole event before any redaction.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from canonicaljson import encode_canonical_json

from synapse_lakehouse.events.redaction import ROOM_VERSION_RULES, redact

HASH_VERDICTS: Final = {
    "intact": "Both hashes match: the event is as it was sent.",
    "pruned": "The event ID matches, and the event was redacted: its content was removed.",
    "altered": "The event does not match its ID or its hash, and was not redacted.",
    "not_hashed": "The hashes could not be computed.",
    "no_json": "No JSON is stored.",
}

HASH_REASONS: Final = {
    "event_id": "The hash of the redacted form is not the event ID.",
    "content": "The content's hash is not hashes.sha256, and the event was not redacted.",
    "room_id": "The room ID is not the hash of the room's creation event.",
    "not_an_event": "The event is not a JSON object with a type and a content.",
    "unknown_version": "The room version is unknown.",
    "not_canonical": "The event contains a value without a canonical form, such as an unpaired surrogate or NaN.",
    "no_content_hash": "The event has no hashes.sha256.",
}
"""Reasons of the verdicts ``altered`` (the first four reasons) and ``not_hashed`` (all other reasons)."""

# Keys that the content hash omits, and keys that the event ID omits.
_NOT_CONTENT: Final = frozenset({"age_ts", "unsigned", "signatures", "hashes", "outlier", "destinations"})
_NOT_REFERENCE: Final = frozenset({"age_ts", "unsigned", "signatures"})
# Rules by event format, for rooms whose version is not stored.
_RULES_OF_FORMAT: Final = {None: 1, 1: 1, 2: 3, 4: 12, 5: 13}


class HashVerdict(NamedTuple):
    """A key of :data:`HASH_VERDICTS`; for ``altered`` and ``not_hashed`` also a key of :data:`HASH_REASONS`."""

    verdict: str
    reason: str | None = None


def verify_event(
    event: Mapping[str, Any] | None,
    event_id: str,
    room_id: str | None,
    room_version: str | None,
    format_version: int | None,
) -> HashVerdict:
    """Verify a stored event. In room versions 1 and 2 the event ID is not a hash, so only the content hash is verified.

    :param event: the parsed JSON; None if the JSON is not an object.
    :param room_id: the room in which the event is stored.
    :param format_version: column of ``event_json``. It is used if the database does not contain the room version.
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
    """Return whether ``event_id`` is the hash of the event's redacted form. ``rules`` must be at least 3."""
    return compute_event_id(redact(event, rules), rules) == event_id


def _compare(event: Mapping[str, Any], event_id: str, room_id: str | None, rules: int) -> HashVerdict:
    if rules >= 3 and not matches_event_id(event, event_id, rules):
        return HashVerdict("altered", "event_id")
    if rules >= 12 and event["type"] == "m.room.create" and (room_id or "")[1:] != event_id[1:]:
        return HashVerdict("altered", "room_id")
    declared, computed = _read_declared_hash(event), compute_content_hash(event)
    if declared is None:
        return HashVerdict("not_hashed", "no_content_hash")
    if declared == computed:
        return HashVerdict("intact")
    return HashVerdict("pruned") if _is_pruned(event, rules) else HashVerdict("altered", "content")


def _is_pruned(event: Mapping[str, Any], rules: int) -> bool:
    """Whether the hashed part of the event is already in its redacted form."""
    pruned = redact(event, rules)
    return pruned["content"] == event["content"] and event.keys() - _NOT_CONTENT == pruned.keys() - _NOT_CONTENT


def compute_event_id(pruned: Mapping[str, Any], rules: int) -> str:
    """Return the event ID, which is the hash of the redacted form ``pruned``. ``rules`` must be at least 3."""
    digest = hashlib.sha256(_encode_canonically(pruned, _NOT_REFERENCE)).digest()
    encoded = base64.b64encode(digest) if rules == 3 else base64.urlsafe_b64encode(digest)
    return "$" + encoded.decode().rstrip("=")


def compute_content_hash(event: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of the event without the keys that are not hashed."""
    return hashlib.sha256(_encode_canonically(event, _NOT_CONTENT)).digest()


def _read_declared_hash(event: Mapping[str, Any]) -> bytes | None:
    """The content hash that the event contains; None if it contains none."""
    hashes = event.get("hashes")
    encoded = hashes.get("sha256") if isinstance(hashes, Mapping) else None
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4)) if isinstance(encoded, str) else None
    except ValueError:
        return None


def _encode_canonically(event: Mapping[str, Any], without: frozenset[str]) -> bytes:
    encoded: bytes = encode_canonical_json({key: value for key, value in event.items() if key not in without})
    return encoded
