"""Asks Synapse's own code to redact and to hash events, in every room version it has. Run by Synapse's own Python.

Reads a JSON array of events from stdin. Prints a JSON object: room version → an answer for each event: ``[redacted
form without unsigned, content hash in hexadecimal, event id]``. The id is null where the version has no hashed ids, and
false where Synapse takes this for no event of that version.
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
    """What Synapse makes of ``event``."""
    redacted = redact_event_dict(version, event)
    redacted.pop("unsigned", None)
    return [redacted, compute_content_hash(event, hashlib.sha256)[1].hex(), event_id(event, version)]


def event_id(event: dict[str, Any], version: RoomVersion) -> str | bool | None:
    """The id that Synapse gives it."""
    if version.event_format == EventFormatVersions.ROOM_V1_V2:
        return None
    try:
        created: str = make_event_from_dict(event, version).event_id
    except SynapseError:
        return False
    return created


if __name__ == "__main__":
    # As the experimental features msc1767_enabled and msc4242_enabled do.
    for version in (RoomVersions.MSC1767v10, RoomVersions.MSC4242v12):
        KNOWN_ROOM_VERSIONS.add_room_version(version)
    asked = json.load(sys.stdin)
    print(
        json.dumps({name: [answer(item, version) for item in asked] for name, version in KNOWN_ROOM_VERSIONS.items()})
    )
