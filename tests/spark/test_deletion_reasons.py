"""The reason of a deleted row comes from other rows that were deleted with it."""

import json
from datetime import UTC, datetime

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.ingest import deleted_keys

NOW = datetime(2026, 11, 21, tzinfo=UTC)
DELETED: dict[str, list[dict[str, str | None]]] = {
    "rooms": [{"room_id": "!gone:it"}],
    "events": [{"event_id": "$gone"}],
    "room_depth": [{"room_id": "!gone:it"}],
    "event_edges": [{"event_id": "$gone", "prev_event_id": "$kept"}],
    "event_forward_extremities": [
        {"event_id": "$other", "room_id": "!kept:it"},
        {"event_id": "$gone", "room_id": "!kept:it"},
    ],
    "receipts_linearized": [{"user_id": '@"é"\n:it', "thread_id": None}],
}


def test_a_deleted_room_or_event_is_the_reason_of_its_rows(settings: Settings) -> None:
    spark = create_spark_session("deletions", settings)
    keys = {
        table: spark.createDataFrame(rows, ", ".join(f"{name} string" for name in rows[0]))
        for table, rows in DELETED.items()
    }
    actual = deleted_keys.build_deletion_rows(keys, NOW).collect()
    assert {(row.table_name, row.key): row.reason for row in actual} == {
        ("rooms", '{"room_id":"!gone:it"}'): "its room was deleted",
        ("events", '{"event_id":"$gone"}'): "its event was purged",
        ("room_depth", '{"room_id":"!gone:it"}'): "its room was deleted",
        ("event_edges", '{"event_id":"$gone","prev_event_id":"$kept"}'): "its event was purged",
        ("event_forward_extremities", '{"event_id":"$other","room_id":"!kept:it"}'): None,
        ("event_forward_extremities", '{"event_id":"$gone","room_id":"!kept:it"}'): "its event was purged",
        (
            "receipts_linearized",
            json.dumps(DELETED["receipts_linearized"][0], separators=(",", ":"), ensure_ascii=False),
        ): None,
    }
    assert {row.deleted_at.astimezone(UTC) for row in actual} == {NOW}
    (room_row,) = deleted_keys.build_deletion_rows({"rooms": keys["rooms"]}, NOW).collect()
    assert room_row.reason == "its room was deleted"
