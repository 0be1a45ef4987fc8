"""The server sends rows in the formats of Synapse's releases."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.replication.protocol.dialect import Dialect
from synapse_lakehouse.replication.protocol.row_schemas import ROW_SCHEMAS, Release, parse_release, row_schemas_of
from tests.replication.conversation import Conversation, run_conversations
from tests.replication.database import Database

FIELDS: dict[str, dict[Release, int]] = {
    "events": {(1, 0): 6, (1, 22): 6, (1, 23): 8, (1, 63): 8, (1, 64): 9, (1, 163): 9},
    "backfill": {(1, 0): 6, (1, 163): 6},
    "presence": {(1, 0): 7, (1, 163): 7},
    "receipts": {(1, 0): 5, (1, 68): 5, (1, 69): 6, (1, 163): 6},
    "push_rules": {(1, 0): 1, (1, 163): 1},
    "pushers": {(1, 0): 4, (1, 163): 4},
    "caches": {(1, 0): 3, (1, 163): 3},
    "device_lists": {(1, 0): 2, (1, 12): 2, (1, 13): 1, (1, 75): 1, (1, 76): 2, (1, 109): 2, (1, 110): 3, (1, 163): 3},
    "to_device": {(1, 0): 1, (1, 163): 1},
    "account_data": {(1, 0): 4, (1, 6): 4, (1, 7): 3, (1, 163): 3},
    "un_partial_stated_room": {(1, 74): 1, (1, 163): 1},
    "un_partial_stated_event": {(1, 75): 2, (1, 163): 2},
    "thread_subscriptions": {(1, 135): 3, (1, 163): 3},
    "sticky_events": {(1, 148): 2, (1, 163): 2},
    "profile_updates": {(1, 159): 3, (1, 163): 3},
    "quarantined_media": {(1, 152): 3, (1, 163): 3},
}
"""Number of fields of a stream's row class; for events, of ``ev`` rows."""


@pytest.mark.parametrize("stream", ROW_SCHEMAS)
def test_rows_have_as_many_fields_as_synapse_s(stream: str) -> None:
    field_counts = {
        release: {len(shape.fields) for shape in row_schemas_of(release)[stream] if shape.tag in (None, "ev")}
        for release in FIELDS[stream]
    }
    assert field_counts == {release: {count} for release, count in FIELDS[stream].items()}
    assert row_schemas_of((1, 163))[stream] == ROW_SCHEMAS[stream]
    major, minor = min(FIELDS[stream])
    assert minor == 0 or stream not in row_schemas_of((major, minor - 1))


def test_rows_have_the_requested_format(homeserver: Database) -> None:
    homeserver.add_event(2, "ep1")
    homeserver.complete_events(2)
    homeserver.execute(
        "insert into device_lists_stream (stream_id, user_id, device_id) values (2, '@a', 'D'), (3, '@a', 'E')"
    )
    homeserver.set_last_allocated("device_lists", 3)
    homeserver.set_position("device_lists", "master", 3)
    homeserver.execute(
        "insert into receipts_linearized (stream_id, room_id, receipt_type, user_id, event_id, data)"
        " values (2, '!r', 'm.read', '@a', '$e2', '{\"ts\": 5, \"more\": 6}')"
    )
    homeserver.set_last_allocated("receipts", 2)
    homeserver.set_position("receipts", "master", 2)

    def is_last(end: str, line: str) -> bool:
        return line.startswith(end)

    async def follow(conversation: Conversation) -> None:
        rows = []
        for stream, last in (("events", 2), ("device_lists", 3), ("receipts", 2)):
            conversation.send(f"REPLICATE {stream} 1")
            end = f"RDATA {stream} {last}"
            received = await conversation.read_until(partial(is_last, end))
            rows += [json.loads(line.split(" ", 3)[3]) for line in received if line.startswith("RDATA")]
        assert rows == [
            ["ev", ["$e2", "!r", "m.room.message", None, None, None, None, False]],
            ["@a"],
            ["@a"],
            ["!r", "m.read", "@a", "$e2", {"ts": 5}],
        ]

    run_conversations(homeserver, Dialect.TOKENS, follow, release=(1, 40))


@pytest.mark.parametrize(
    ("text", "release"),
    [("1.40", (1, 40)), ("v1.40.2", (1, 40)), ("1.0", (1, 0)), ("0.34", None), ("1", None), ("1.40rc1", None)],
)
def test_parse_release(text: str, release: Release | None) -> None:
    assert parse_release(text) == release


def test_an_unknown_row_format_is_refused() -> None:
    result = CliRunner().invoke(app, ["replicate", "serve", "--row-format", "newest"])
    assert result.exit_code == 2
