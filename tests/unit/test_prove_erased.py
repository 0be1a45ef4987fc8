"""The summary and the exit code of prove-erased."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
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
    positions={}, views={}, checks_passed=0, checks_warned=0, published_at=MOMENT, partial=(), accepted_at=MOMENT,
)  # fmt: skip
USER = "@erin:synapse.example"


def content(state: ContentState, events: int) -> FoundContent:
    return FoundContent("bronze.event_json", state, events, ("a.parquet",))


@pytest.mark.parametrize(
    ("contents", "code", "counts"),
    [
        ([], 0, [RELEASE.number]),
        ([content(ContentState.IN_SOURCE, 3)], 3, [3]),
        ([content(ContentState.LEFT_BEHIND, 4)], 3, [4]),
        ([content(ContentState.REPLACED, 2)], 1, [2, 0]),
        ([content(ContentState.PURGED, 5), content(ContentState.IN_SOURCE, 3)], 1, [3, 0, 5]),
    ],
)
def test_the_summary_separates_lake_and_source(contents: list[FoundContent], code: int, counts: list[int]) -> None:
    text, exit_code = summarize_proof(USER, RELEASE, contents)
    assert exit_code == code
    assert [int(number) for number in re.findall(r"\b\d+\b", text)] == counts


def test_a_partial_release_is_no_proof() -> None:
    for contents in ([], [content(ContentState.IN_SOURCE, 3)]):
        text, exit_code = summarize_proof(USER, replace(RELEASE, partial=("event_json", "rooms")), contents)
        assert exit_code == 1
        assert "release 7" in text
    assert summarize_proof(USER, replace(RELEASE, partial=("rooms",)), [])[1] == 0


def test_an_unreadable_file_is_no_proof() -> None:
    unreadable_files = [UnreadableFiles("bronze.events", ("half.parquet", "other.parquet"))]
    for contents in ([], [content(ContentState.IN_SOURCE, 3)]):
        text, exit_code = summarize_proof(USER, RELEASE, contents, unreadable_files)
        assert exit_code == 1
        assert "2 files" in text


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"content": {}, "unsigned": {"age_ts": 1, "replaces_state": "$was"}, "signatures": {"a": {"b": "c"}}}, False),
        ({"content": {"body": "hello"}}, True),
        ({"content": "hello"}, True),
        ({"content": ["hello"]}, True),
        ({"content": None}, False),
        ({"content": {}, "unsigned": ["hello"]}, True),
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
def test_content_columns_are_those_that_redaction_removes(event: dict[str, Any], expected: bool) -> None:
    event_json = json.dumps({"type": "m.room.message", "sender": USER, "room_id": "!r", "depth": 1} | event)
    with duckdb.connect() as connection:
        connection.execute("create table found as select $json as json", {"json": event_json})
        assert connection.sql(f"select {HAS_CONTENT['json']} from found").fetchone() == (expected,)


@pytest.mark.parametrize("text", ["hello", '"hello"', '["hello"]', "5"])
def test_text_that_is_no_json_object_is_content(text: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("create table found as select $json as json", {"json": text})
        assert connection.sql(f"select {HAS_CONTENT['json']} from found").fetchone() == (True,)
