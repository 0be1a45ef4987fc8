"""The answers on the page, from planted rows of its panels."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pytest

from synapse_lakehouse.report.answers import build_answers
from synapse_lakehouse.report.panel import Row
from synapse_lakehouse.report.read_panels import PanelRows
from synapse_lakehouse.report.sections import SECTIONS
from synapse_lakehouse.report.status import Level, Problem, Status

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PANELS = {panel.id: panel for section in SECTIONS for panel in section.panels}
TABLE: Row = {"name": "events", "bytes": 2048, "per_day": None}
DISK: Row = {"name": "lake warehouse", "full_in_days": 12.3}
STREAM: Row = {"stream": "presence", "safe_bound": 5, "open_ids": 3, "missing_writers": ""}
DELAY: Row = {"server": "far.example", "hour": NOON, "p95_ms": 7_200_000}
SERVER: Row = {"server_version": "16.14", "supported_until": date(2099, 1, 1)}
UPDATE: Row = {"update_name": "sort_rooms", "since": NOON}
FINDING: Row = {"finding": "event lost", "severity": "warn", "findings": 7}
REPORT: Row = {
    "kind": "user", "event_id": None, "reported_user_id": "@bad:x", "room_id": None, "reporter_id": "@me:x",
    "received_at": NOON,
}  # fmt: skip
STUCK = Problem(Level.SERIOUS, "standing-still", "stream events", "writer b does not move", "", NOON)
ROOMS: Row = {"all_copied_rows": 3, "all_rows": 9}
RUN: Row = {"release": 4, "seconds": 80.0, "cpu_seconds": 41.5, "rows_read": 5, "rows_written": None}
NO_DIFF = "There is no earlier release to compare with yet."


def answer(rows: Mapping[str, Sequence[Row]], anchor: str, problems: Sequence[Problem] = ()) -> str:
    read = {id: PanelRows(panel, rows.get(id, []), panel.empty) for id, panel in PANELS.items()}
    answers = build_answers(read, Status(Level.GOOD, None, "", "", problems), None, NO_DIFF)
    assert {item.anchor for item in answers} <= {*PANELS, "changes"}
    assert all(item.text for item in answers)
    return next(item.text for item in answers if item.anchor == anchor)


def test_an_empty_lake_has_a_sentence_for_each_question() -> None:
    read = {id: PanelRows(panel, [], panel.empty) for id, panel in PANELS.items()}
    answers = build_answers(read, Status(Level.GOOD, None, "", "", ()), None, NO_DIFF)
    assert len(answers) == 10
    assert all(item.text.endswith(".") for item in answers)


@pytest.mark.parametrize(
    ("anchor", "rows", "parts"),
    [
        ("relation-sizes", {"relation-sizes": [TABLE]}, ["events", "2.0 KiB"]),
        ("relation-sizes", {"relation-sizes": [TABLE, {**TABLE, "name": "fast", "per_day": 1024.0}]},
         ["events", "fast", "1.0 KiB"]),
        ("relation-sizes", {"relation-sizes": [TABLE], "disks": [DISK]}, ["lake warehouse", "12 days"]),
        ("stream-positions", {"stream-positions": [STREAM]}, ["presence 3"]),
        ("stream-positions", {"stream-positions": [{**STREAM, "missing_writers": "b"}]}, ["3", "written: presence"]),
        ("background-updates", {"background-updates": [UPDATE], "postgresql": [SERVER]},
         ["Not yet", "sort_rooms", "2026-11-20 12:00 UTC", "16.14", "2099-01-01"]),
        ("background-updates", {"postgresql": [{**SERVER, "supported_until": date(2020, 1, 1)}]},
         ["may be upgraded", "no support since 2020-01-01"]),
        ("events-by-room", {"events-by-room": [{"room": "other rooms", "events": 90}, {"room": "a", "events": 4},
                                               {"room": "b", "events": 3}, {"room": "b", "events": 3}]},
         ["b got", "6 of 100"]),
        ("federation-delay", {"federation-delay": [DELAY, {**DELAY, "server": "near", "p95_ms": 5}],
                              "silent-servers": [{"server": "mute", "silent_hours": 80}]},
         ["far.example", "2.0 h", "mute", "3.3 days"]),
        ("runs", {"runs": [{**RUN, "release": 3}, RUN]}, ["Release 4", "80.0 s", "41.5 s", "5 rows read"]),
        ("findings", {"findings": [{**FINDING, "severity": "info"}]}, ["No.", "7"]),
        ("findings", {"findings": [FINDING]}, ["Perhaps", "7", "event lost"]),
        ("findings", {"findings": [{**FINDING, "severity": "fail"}]}, ["Yes", "7"]),
        ("compression", {"state-rooms": [ROOMS]}, ["3 of 9"]),
        ("compression", {"state-rooms": [ROOMS], "compression": [{"all_saved": 5, "all_saved_bytes": 1024}]},
         ["5 rows", "1.0 KiB"]),
        ("reports", {"reports": [REPORT]}, ["@me:x", "user @bad:x"]),
    ],
)  # fmt: skip
def test_an_answer_has_the_values_of_its_rows(anchor: str, rows: dict[str, Any], parts: list[str]) -> None:
    text = answer(rows, anchor)
    assert [part for part in parts if part not in text] == []


def test_an_incident_decides_whether_a_stream_is_stuck() -> None:
    text = answer({"stream-positions": [STREAM]}, "stream-positions", [STUCK])
    assert text.startswith("Yes: stream events")


def test_hostile_names_are_short_and_printable() -> None:
    text = answer({"reports": [{**REPORT, "reporter_id": "\x1b[31m" + "x" * 500}]}, "reports")
    assert "\x1b" not in text
    assert len(text) < 250
