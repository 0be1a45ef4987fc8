"""Redact and hash events with Synapse's own code, in all room versions. Synapse's Python runs this program.

It reads a JSON array of events from stdin. It prints a JSON object: room version → for each event ``[redacted event
without unsigned, content hash in hexadecimal, event ID]``. The ID is null if the version has no hashed IDs, and false
if Synapse rejects the event in that version.
"""

import hashlib
import json
import sys
from typing import Any

from synapse.api.errors import SynapseError
from synapse.api.room_versions import KNOWN_ROOM_VERSIONS, EventFormatVersions, RoomVersion, RoomVersions
from synapse.crypto.event_signing import compute_content_hash
from synapse.events import make_event_from_dict
from synapse.synapse_rust.events import redact_event_dict


def answer(event: dict[str, Any], version: RoomVersion) -> list[Any]:
    """Return Synapse's redacted event, content hash and event ID."""
    redacted = redact_event_dict(version, event)
    redacted.pop("unsigned", None)
    return [redacted, compute_content_hash(event, hashlib.sha256)[1].hex(), event_id(event, version)]


def event_id(event: dict[str, Any], version: RoomVersion) -> str | bool | None:
    """Return the event ID that Synapse computes; None and False as in the output."""
    if version.event_format == EventFormatVersions.ROOM_V1_V2:
        return None
    try:
        created: str = make_event_from_dict(event, version).event_id
    except SynapseError:
        return False
    return created


if __name__ == "__main__":
    # The experimental features msc1767_enabled and msc4242_enabled do the same.
    for version in (RoomVersions.MSC1767v10, RoomVersions.MSC4242v12):
        KNOWN_ROOM_VERSIONS.add_room_version(version)
    events = json.load(sys.stdin)
    print(
        json.dumps(
            {name: [answer(event, version) for event in events] for name, version in KNOWN_ROOM_VERSIONS.items()}
        )
    )
