"""Load an event from a row of ``event_json`` as Synapse 1.163 does, or return the reason why Synapse cannot. Pure.

The checks have the same order as in ``EventsWorkerStore._fetch_event_rows`` and ``_get_events_from_db``, in
``make_event_from_dict``, and in Synapse's event class. If Synapse cannot load an event, it treats the event as unknown,
or answers the request with an error. In both cases clients do not see the event.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.events import event_hashes, synapse_json, validate_event
from synapse_lakehouse.events.event_hashes import HashVerdict
from synapse_lakehouse.events.redaction import ROOM_VERSION_RULES

UNLOADABLE_REASONS: Final = {
    "not_json": "The JSON cannot be parsed, or is not an object.",
    "unusable_ids": "Room ID or sender is not a text, or contains a NUL, so PostgreSQL refuses Synapse's query.",
    "not_finite": "The event contains NaN or Infinity.",
    "metadata_missing": "There is no internal metadata.",
    "metadata_not_json": "The internal metadata cannot be parsed.",
    "metadata_not_an_object": "The internal metadata is JSON, but not an object.",
    "room_unknown": "The database does not contain the room version, and the event is not a membership event.",
    "room_version_unknown": "Synapse does not support the room version.",
    "other_format": "The event's format is not the format of its room version.",
    "not_canonical": "The event contains an unpaired surrogate, or a number that is too large for a float.",
    "nested_too_deep": "Arrays and objects are nested 128 levels deep or deeper.",
    "other_event_id": "The JSON belongs to another event: its event ID, or the hash that is its event ID, differs.",
} | {
    f"invalid_{name}": f"`{name}` is missing, has the wrong type, or is not allowed."
    for name in validate_event.CHECKED_FIELDS
}
"""Reasons why an event cannot be loaded."""

_NOT_STORABLE: Final = re.compile(r"[\0\ud800-\udfff]")
"""Characters that PostgreSQL's text cannot contain."""

FORMAT_OF_ROOM_VERSION: Final = {
    version: 1 + sum(rules >= first for first in (3, 4, 12, 13)) for version, rules in ROOM_VERSION_RULES.items()
}
"""``format_version`` of events by room version. Room versions 3, 4, 12 and 13 introduced new formats."""

ROOM_PROPERTY_KEYS: Final = {
    "m.room.canonical_alias": "alias",
    "m.room.create": "type",
    "m.room.encryption": "algorithm",
    "m.room.guest_access": "guest_access",
    "m.room.history_visibility": "history_visibility",
    "m.room.join_rules": "join_rule",
    "m.room.name": "name",
    "m.room.tombstone": "replacement_room",
}
"""Content key whose value is a property of the room, by type of the state event. The state key is empty."""

UNREADABLE_METADATA: Final = '"unreadable"'
"""Value in bronze in place of internal metadata that is not JSON."""

# Room versions by event format, for rooms without a stored version. These are rooms of old invites.
_VERSION_OF_FORMAT: Final = {1: "1", 2: "3"}
_VERSION_OF_OTHER_FORMATS: Final = "5"
_FIRST_WITH_REDACTS_IN_CONTENT: Final = 11


class LoadedEvent(NamedTuple):
    """An event as Synapse loads it from a row of ``event_json``.

    ``unloadable`` is None or one of :data:`UNLOADABLE_REASONS`. An unloadable event has only ``hash_verdict`` and
    ``hash_reason`` (see :class:`HashVerdict`), and the flags of readable internal metadata. If a value should be text
    but is not, its JSON is returned. ``prev_membership``, ``prev_visibility`` and ``has_prev_content`` describe the
    event that this event replaces, according to its ``unsigned``. ``room_property`` is the room's name, type or other
    property (see :data:`ROOM_PROPERTY_KEYS`), if ``StatsStore.update_room_state`` accepts the value. ``prev_events``
    and ``auth_events`` are the numbers of rows that Synapse stores in ``event_edges`` and, for a state event, in
    ``event_auth`` (``prev_event_ids`` and ``auth_event_ids`` of ``synapse.events``).
    """

    unloadable: str | None
    soft_failed: bool
    out_of_band_membership: bool
    recheck_redaction: bool
    pruned_on_receipt: bool
    policy_server_spammy: bool
    hash_verdict: str
    hash_reason: str | None
    type: str | None
    sender: str | None
    room_id: str | None
    state_key: str | None
    redacts: str | None
    prev_events: int | None
    auth_events: int | None
    replaces_state: str | None
    prev_membership: str | None
    prev_visibility: str | None
    has_prev_content: bool
    membership: str | None
    history_visibility: str | None
    join_rule: str | None
    room_property: str | None
    predecessor: str | None


_NO_FLAGS: Final = (False,) * 5
_NO_STATE: Final = (None, None, None, False, None, None, None, None, None)
_NO_FIELDS: Final = (None,) * 7 + _NO_STATE


class _UnloadableError(LakehouseError):
    """The event cannot be loaded, for one of :data:`UNLOADABLE_REASONS`."""


def load_event(
    event_id: str,
    room_id: str | None,
    text: str | None,
    internal_metadata: str | None,
    format_version: int | None,
    room_version: str | None,
) -> LoadedEvent:
    """Load the event of a row of ``event_json``.

    :param event_id: the row's event ID.
    :param room_id: the row's room ID.
    :param text: the column ``json``.
    :param room_version: the version in ``rooms``; None or empty if no version is stored.
    """
    event, flaw = synapse_json.parse_event(text or "")
    if text is None:
        hash_verdict = HashVerdict("no_json")
    elif event is None and flaw:
        hash_verdict = HashVerdict("not_hashed", flaw)
    else:
        hash_verdict = event_hashes.verify_event(event, event_id, room_id, room_version, format_version)
    metadata_flaw, flags = _read_flags(internal_metadata)
    try:
        if event is None:
            raise _UnloadableError("not_json")
        _require_usable_ids(event)
        if flaw == "not_finite":
            raise _UnloadableError(flaw)
        if metadata_flaw and metadata_flaw != "metadata_not_an_object":
            raise _UnloadableError(metadata_flaw)
        rules = ROOM_VERSION_RULES[_find_room_version(event, format_version, room_version)]
        if flaw or synapse_json.has_unpaired_surrogate(event, text or ""):
            raise _UnloadableError("not_canonical")
        if metadata_flaw:
            raise _UnloadableError(metadata_flaw)
        if synapse_json.is_nested_too_deep(event, text or ""):
            raise _UnloadableError("nested_too_deep")
        if name := validate_event.find_invalid_field(event, rules):
            raise _UnloadableError(f"invalid_{name}")
        if not _has_its_id(event, event_id, rules, hash_verdict if room_version else None):
            raise _UnloadableError("other_event_id")
    except _UnloadableError as error:
        return LoadedEvent._make((str(error), *flags, *hash_verdict, *_NO_FIELDS))
    return LoadedEvent._make((None, *flags, *hash_verdict, *_extract_fields(event, event_id, rules)))


def _require_usable_ids(event: Mapping[str, Any]) -> None:
    """Raise if PostgreSQL refuses room ID or sender. Before all other checks, Synapse sends both in a query."""
    for name in ("room_id", "sender"):
        value = event.get(name)
        if value is not None and (type(value) is not str or _NOT_STORABLE.search(value)):
            raise _UnloadableError("unusable_ids")


def _read_flags(internal_metadata: str | None) -> tuple[str | None, tuple[bool, ...]]:
    """Return the reason why the metadata is unusable (or None), and the flags. A flag that is no boolean is false."""
    if internal_metadata is None:
        return "metadata_missing", _NO_FLAGS
    if internal_metadata == UNREADABLE_METADATA:
        return "metadata_not_json", _NO_FLAGS
    try:
        metadata = synapse_json.parse_metadata(internal_metadata)
    except ValueError:
        return "metadata_not_json", _NO_FLAGS
    if not metadata:
        return None, _NO_FLAGS
    if not isinstance(metadata, dict):
        return "metadata_not_an_object", _NO_FLAGS
    return None, (
        metadata.get("soft_failed") is True,
        metadata.get("out_of_band_membership") is True,
        metadata.get("recheck_redaction") is True,
        metadata.get("redacted") is True,
        metadata.get("policy_server_spammy") is True,
    )


def _find_room_version(event: Mapping[str, Any], format_version: int | None, room_version: str | None) -> str:
    """The room version whose rules apply to the event."""
    form = 1 if format_version is None else format_version
    if not room_version:
        if event.get("type") != "m.room.member":
            raise _UnloadableError("room_unknown")
        return _VERSION_OF_FORMAT.get(form, _VERSION_OF_OTHER_FORMATS)
    if room_version not in FORMAT_OF_ROOM_VERSION:
        raise _UnloadableError("room_version_unknown")
    if FORMAT_OF_ROOM_VERSION[room_version] != form:
        raise _UnloadableError("other_format")
    return room_version


def _has_its_id(event: dict[str, Any], event_id: str, rules: int, hash_verdict: HashVerdict | None) -> bool:
    """Whether ``event_id`` is the event's ID.

    :param hash_verdict: the verdict by the same ``rules``; None if the hashes were not verified.
    """
    if "event_id" in event:
        return bool(event["event_id"] == event_id)
    numbers = validate_event.convert_numbers_to_objects(event)
    if hash_verdict and not numbers:
        return hash_verdict.reason != "event_id"
    return event_hashes.matches_event_id(event | numbers, event_id, rules)


def _extract_fields(event: Mapping[str, Any], event_id: str, rules: int) -> tuple[Any, ...]:
    """The fields of :class:`LoadedEvent` from ``type`` on."""
    type_, state_key, content = event["type"], event.get("state_key"), event["content"]
    if type(content) is not dict:
        content = {}
    redacts = None
    if type_ == "m.room.redaction":
        redacts = (content if rules >= _FIRST_WITH_REDACTS_IN_CONTENT else event).get("redacts")
    common = (
        type_,
        event["sender"],
        event.get("room_id", "!" + event_id[1:]),
        state_key,
        redacts if type(redacts) is str else None,
        _count_references(event["prev_events"], rules),
        None if state_key is None else _count_auth_events(event, rules),
    )
    if state_key is None:
        return (*common, *_NO_STATE)
    unsigned = event.get("unsigned", {})
    previous = unsigned.get("prev_content")
    replaced = previous if type(previous) is dict else {}
    return (
        *common,
        unsigned.get("replaces_state"),
        _as_text(replaced.get("membership")),
        _as_text(replaced.get("history_visibility")),
        previous is not None and unsigned.get("prev_sender") is not None,
        _as_text(content.get("membership")) if type_ == "m.room.member" else None,
        _as_text(content.get("history_visibility")) if type_ == "m.room.history_visibility" else None,
        _as_text(content.get("join_rule")) if type_ == "m.room.join_rules" and not state_key else None,
        _storable_text(content.get(ROOM_PROPERTY_KEYS[type_]))
        if type_ in ROOM_PROPERTY_KEYS and not state_key
        else None,
        _find_predecessor(content) if type_ == "m.room.create" and not state_key else None,
    )


def _count_references(references: Sequence[Any], rules: int) -> int:
    """Number of distinct events in a list of event IDs, or of pairs of an event ID and hashes."""
    return len(set(references) if rules >= validate_event.FIRST_WITH_HASHED_IDS else {pair[0] for pair in references})


def _count_auth_events(event: Mapping[str, Any], rules: int) -> int | None:
    """Number of events that authorize the event; None if the event does not name them itself."""
    if rules >= validate_event.FIRST_WITH_STATE_GRAPH:
        return None
    # From these rules on, the creation event authorizes every other event. The room ID names it; auth_events does not.
    implied = rules >= validate_event.FIRST_WITH_HASHED_ROOM_IDS and event["type"] != "m.room.create"
    return _count_references(event["auth_events"], rules) + implied


def _as_text(value: Any) -> str | None:
    return value if value is None or type(value) is str else json.dumps(value)


def _storable_text(value: Any) -> str | None:
    """The value if PostgreSQL can store it as text, otherwise None."""
    return value if type(value) is str and "\0" not in value else None


def _find_predecessor(content: Mapping[str, Any]) -> str | None:
    predecessor = content.get("predecessor")
    return _storable_text(predecessor.get("room_id")) if type(predecessor) is dict else None
