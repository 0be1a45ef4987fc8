"""Validate an event's fields as the event class of Synapse 1.163 does (``rust/src/events/formats``). Pure.

The class reads JSON with ``serde``. For ``serde``, a float is an object with one key, and so is an integer of more than
64 bits.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

CHECKED_FIELDS: Final = (
    "auth_events",
    "content",
    "depth",
    "event_id",
    "hashes",
    "origin_server_ts",
    "prev_events",
    "prev_state_events",
    "room_id",
    "sender",
    "signatures",
    "state_key",
    "type",
    "unsigned",
)
"""The fields whose values the class checks."""

_NUMBER: Final = "$serde_json::private::Number"
_LEAST_I64, _MOST_I64, _MOST_U64 = -(2**63), 2**63 - 1, 2**64 - 1
# The first rules (see redaction.ROOM_VERSION_RULES) with a new format of events.
FIRST_WITH_HASHED_IDS, FIRST_WITH_HASHED_ROOM_IDS, FIRST_WITH_STATE_GRAPH = 3, 12, 13


def find_invalid_field(event: Mapping[str, Any], rules: int) -> str | None:
    """Return the first field that is missing, has the wrong type, or is not allowed by ``rules``; else None."""
    for name in ("type", "sender"):
        if type(event.get(name)) is not str:
            return name
    for name in ("depth", "origin_server_ts"):
        if type(value := event.get(name)) is not int or not _LEAST_I64 <= value <= _MOST_I64:
            return name
    if type(event.get("content")) is not dict and not _is_wide(event.get("content")):
        return "content"
    if not _maps_to_texts(event.get("hashes")):
        return "hashes"
    if "state_key" in event and type(event["state_key"]) is not str:
        return "state_key"
    signatures = event.get("signatures", {})
    if type(signatures) is not dict or not all(
        type(keys) is dict and _maps_to_texts(keys) for keys in signatures.values()
    ):
        return "signatures"
    if not _is_unsigned(event.get("unsigned", {})):
        return "unsigned"
    return _find_invalid_field_of_format(event, rules)


def _find_invalid_field_of_format(event: Mapping[str, Any], rules: int) -> str | None:
    has_graph = rules >= FIRST_WITH_STATE_GRAPH
    is_hashed = rules >= FIRST_WITH_HASHED_IDS
    for name in ("prev_events", "prev_state_events" if has_graph else "auth_events"):
        if not (_are_texts(event.get(name)) if is_hashed else _are_references(event.get(name))):
            return name
    if ("event_id" in event) if is_hashed else (type(event.get("event_id")) is not str):
        return "event_id"
    if has_graph and "auth_events" in event:
        return "auth_events"
    room_id = event.get("room_id")
    if rules < FIRST_WITH_HASHED_ROOM_IDS:
        return None if type(room_id) is str else "room_id"
    if event["type"] == "m.room.create" and event.get("state_key") == "":
        return "room_id" if "room_id" in event else None
    return None if type(room_id) is str and room_id.startswith("!") else "room_id"


def convert_numbers_to_objects(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a valid event that are numbers but should be objects, as Synapse's class represents them."""
    return {name: {_NUMBER: json.dumps(event[name])} for name in ("content", "hashes") if type(event[name]) is not dict}


def _is_wide(value: Any) -> bool:
    return type(value) is float or (type(value) is int and not _LEAST_I64 <= value <= _MOST_U64)


def _maps_to_texts(value: Any) -> bool:
    return all(type(text) is str for text in value.values()) if type(value) is dict else _is_wide(value)


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(type(text) is str for text in value)


def _are_references(value: Any) -> bool:
    """Whether the value is a list of pairs (event ID, hashes), as in the first room versions."""
    return type(value) is list and all(_is_reference(pair) for pair in value)


def _is_reference(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) == len(("id", "hashes"))
        and type(value[0]) is str
        and _maps_to_texts(value[1])
    )


def _is_unsigned(value: Any) -> bool:
    if type(value) is not dict:
        return False
    age, states = value.get("age_ts"), (value.get("invite_room_state"), value.get("knock_room_state"))
    return (
        (age is None or type(age) in (int, float))
        and all(value.get(name) is None or type(value[name]) is str for name in ("replaces_state", "prev_sender"))
        and all(state is None or type(state) is list for state in states)
    )
