"""The verdict of prove-erased."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli.events.prove_erased import summarize_proof
from synapse_lakehouse.iceberg.maintenance.erasure_scan import HAS_CONTENT, ContentState, FoundContent
from synapse_lakehouse.iceberg.maintenance.warehouse_files import UnreadableFiles

MOMENT = datetime(2026, 11, 18, tzinfo=UTC)
RELEASE = Release(
    number=7, run_id="", interval_start=MOMENT, interval_end=MOMENT, branch="", tag="", server_name="", tables={},
    positions={}, views={}, checks_passed=0, checks_warned=0, published_at=MOMENT,
)  # fmt: skip
USER = "@erin:synapse.example"


def content(state: ContentState, events: int) -> FoundContent:
    return FoundContent("bronze.event_json", state, events, ("a.parquet",))


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([], 0, "Proven: no Parquet file"),
        ([content(ContentState.IN_SOURCE, 3)], 3, "3 messages of @erin:synapse.example are in the lake because"),
        (
            [content(ContentState.LEFT_BEHIND, 4)],
            3,
            "Of 4 events, of anyone, Synapse's database has reactions and no JSON",
        ),
        (
            [content(ContentState.REPLACED, 2)],
            1,
            "content of 2 messages of @erin:synapse.example and of 0 purged events",
        ),
        ([content(ContentState.PURGED, 5), content(ContentState.IN_SOURCE, 3)], 1, "and of 5 purged events"),
    ],
)
def test_the_verdict_separates_the_lake_from_synapse(found: list[FoundContent], code: int, said: str) -> None:
    text, exit_code = summarize_proof(USER, RELEASE, found)
    assert exit_code == code
    assert said in text


def test_a_release_without_deletions_is_no_proof() -> None:
    for found in ([], [content(ContentState.IN_SOURCE, 3)]):
        text, exit_code = summarize_proof(USER, replace(RELEASE, partial=("event_json", "rooms")), found)
        assert exit_code == 1
        assert "release 7 is partial" in text
    assert summarize_proof(USER, replace(RELEASE, partial=("rooms",)), [])[1] == 0


def test_what_cannot_be_read_is_no_proof_whatever_else_was_found() -> None:
    half = [UnreadableFiles("bronze.events", (Path("half.parquet"), Path("other.parquet")))]
    for found in ([], [content(ContentState.IN_SOURCE, 3)]):
        text, exit_code = summarize_proof(USER, RELEASE, found, half)
        assert exit_code == 1
        assert "Not proven: 2 files" in text
        assert "Proven: no" not in text


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"content": {}, "unsigned": {"age_ts": 1, "replaces_state": "$was"}, "signatures": {"a": {"b": "c"}}}, False),
        ({"content": {"body": "hello"}}, True),
        ({"content": "hello"}, True),
        ({"content": ["hello"]}, True),
        ({"content": None}, False),
        ({"content": {}, "unsigned": {"prev_content": {"displayname": "Erin"}}}, True),
        ({"content": {}, "unsigned": {"redacted_because": {"content": {"reason": "hello"}}}}, True),
        ({"content": {}, "org.example.note": "hello"}, True),
        ({"content": {}, "redacts": "$that"}, False),
        ({"content": {}, "redacts": "hello you"}, True),
        ({"type": "m.room.redaction", "content": {"redacts": "$that"}}, False),
        ({"type": "m.room.redaction", "content": {"redacts": "hello"}}, True),
        ({"type": "m.room.redaction", "content": {"redacts": "$that", "reason": "hello"}}, True),
        ({"type": "m.room.message", "content": {"redacts": "$that"}}, True),
    ],
)
def test_content_is_what_redaction_would_take_away(event: dict[str, Any], expected: bool) -> None:
    stored = json.dumps({"type": "m.room.message", "sender": USER, "room_id": "!r", "depth": 1} | event)
    with duckdb.connect() as connection:
        connection.execute("create table found as select $json as json", {"json": stored})
        assert connection.sql(f"select {HAS_CONTENT['json']} from found").fetchone() == (expected,)


def test_text_that_is_no_json_is_content() -> None:
    with duckdb.connect() as connection:
        connection.execute("create table found as select 'hello' as json")
        assert connection.sql(f"select {HAS_CONTENT['json']} from found").fetchone() == (True,)
