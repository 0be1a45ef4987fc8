"""Why rows are gone, as far as the rows that went with them tell."""

import json
from datetime import UTC, datetime

from synapse_lakehouse.bronze import deletions

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_rows_that_went_with_their_room_or_event_say_so() -> None:
    found = list(
        deletions.rows(
            {
                "rooms": [{"room_id": "!gone:it"}],
                "events": [{"event_id": "$gone"}],
                "room_depth": [{"room_id": "!gone:it"}],
                "event_edges": [{"event_id": "$gone", "prev_event_id": "$kept"}],
                "devices": [{"user_id": "@a:it", "device_id": "A"}],
            },
            NOW,
        )
    )
    assert [(row["table_name"], row["reason"]) for row in found] == [
        ("rooms", "its room was deleted"),
        ("events", "its event was purged"),
        ("room_depth", "its room was deleted"),
        ("event_edges", "its event was purged"),
        ("devices", None),
    ]
    assert json.loads(found[3]["key"]) == {"event_id": "$gone", "prev_event_id": "$kept"}
    assert {row["deleted_at"] for row in found} == {NOW}
