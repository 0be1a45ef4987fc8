"""Rows that the source no longer has, and why, as far as other rows that went with them tell."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

Key = Mapping[str, Any]
"""The columns of a row's key."""


def rows(deleted: Mapping[str, Sequence[Key]], now: datetime) -> Iterator[dict[str, Any]]:
    """Rows of ``audit.deletions``.

    :param deleted: keys by table.
    """
    rooms = {key["room_id"] for key in deleted.get("rooms", ())}
    events = {key["event_id"] for key in deleted.get("events", ())}
    for table, keys in deleted.items():
        for key in keys:
            yield {
                "table_name": table,
                "key": json.dumps(key),
                "reason": _reason(key, rooms, events),
                "deleted_at": now,
            }


def _reason(key: Key, rooms: set[str], events: set[str]) -> str | None:
    if key.get("room_id") in rooms:
        return "its room was deleted"
    if key.get("event_id") in events:
        return "its event was purged"
    return None
