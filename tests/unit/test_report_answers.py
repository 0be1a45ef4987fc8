"""Answers on the report page, computed from given rows of its panels."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.report.answers import build_answers
from synapse_lakehouse.report.compare_releases import Comparison, name_period
from synapse_lakehouse.report.overall_status import NEWEST_EVENT, Level, Problem, Status
from synapse_lakehouse.report.panel import Row
from synapse_lakehouse.report.read_panels import PanelRows
from synapse_lakehouse.report.review_items import ReviewItem, grade_status, list_review_items
from synapse_lakehouse.report.sections import SECTIONS, growth, state
from synapse_lakehouse.sizes.summary import SizeRow

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TODAY = datetime.now(UTC).date()
PANELS = {NEWEST_EVENT.id: NEWEST_EVENT} | {panel.id: panel for section in SECTIONS for panel in section.panels}
TABLE: Row = {"name": "events", "bytes": 2048, "per_day": None}
DISK: Row = {
    "name": "lake warehouse", "full_in_days": 12.3, "full_earliest": None, "kind": "lake", "free_bytes": 5
}  # fmt: skip
DATABASE: Row = {**DISK, "full_in_days": None, "kind": "database", "free_bytes": None}
STREAM: Row = {"stream": "presence", "safe_bound": 5, "open_ids": 3, "missing_writers": ""}
WRITER: Row = {"writer": "presence: a", "watched_at": NOON, "minutes_ago": 4}
DELAY: Row = {"server": "far.example", "hour": NOON, "events": 3, "p95_ms": 7_200_000}
SERVER: Row = {"server_version": "16.14", "supported_until": date(2099, 1, 1)}
UPDATE: Row = {"update_name": "sort_rooms", "first_seen": "release 7 (2026-11-20 12:00 UTC)"}
SILENT: Row = {"server": "mute", "silent_hours": 80, "longest_pause_hours": 8}
CHECK: Row = {"subject": "sequences", "fault": None}
FINDING: Row = {"check_name": "event_lost", "severity": "warn", "findings": 7}
REPORT: Row = {
    "kind": "user", "event_id": None, "reported_user_id": "@bad:x", "room_id": None, "reporter_id": "@me:x",
    "received_at": NOON,
}  # fmt: skip
ROOM: Row = {
    "room_id": "!b:x", "name": "b", "events": 6, "all_events": 98, "events_before": 2, "last_day": date(2026, 11, 9),
    "until": date(2026, 11, 9),
}  # fmt: skip
STUCK = Problem(Level.SERIOUS, "standing-still", "stream events", "writer b does not move", "", NOON)
ROOMS: Row = {"all_copied_rows": 3, "all_rows": 9}
SAVED: Row = {"all_saved": 5, "all_before": 20, "all_saved_bytes": 1024}
RUN: Row = {"release": 4, "seconds": 80.0, "cpu_seconds": 41.5, "rows_read": 5, "rows_written": None}
NO_DIFF = Comparison(None, "There is no earlier release to compare with yet.")


def answer(rows: Mapping[str, Sequence[Row]], anchor: str, problems: Sequence[Problem] = ()) -> str:
    panels = {id: PanelRows(panel, rows.get(id, []), panel.empty) for id, panel in PANELS.items()}
    answers = build_answers(panels, Status(Level.GOOD, None, "", "", problems), NO_DIFF)
    assert {item.anchor for item in answers} <= {*PANELS, "changes"}
    assert all(item.text for item in answers)
    return next(item.text for item in answers if item.anchor == anchor)


def test_an_empty_lake_has_a_sentence_for_each_question() -> None:
    panels = {id: PanelRows(panel, [], panel.empty) for id, panel in PANELS.items()}
    answers = build_answers(panels, Status(Level.GOOD, None, "", "", ()), NO_DIFF)
    assert len(answers) == 10
    assert all(item.text.endswith(".") for item in answers)


@pytest.mark.parametrize(
    ("anchor", "rows", "parts"),
    [
        ("relation-sizes", {"relation-sizes": [TABLE]}, ["Not known", "events", "2.0 KiB"]),
        ("relation-sizes", {"relation-sizes": [TABLE, {**TABLE, "name": "fast", "per_day": 1024.0}]},
         ["events", "fast", "1.0 KiB"]),
        ("relation-sizes", {"relation-sizes": [{**TABLE, "per_day": -5.0}]}, ["None: ", "events", "2.0 KiB"]),
        ("relation-sizes", {"relation-sizes": [TABLE], "disks": [DISK]}, ["lake warehouse", "12 days."]),
        ("relation-sizes", {"relation-sizes": [TABLE], "disks": [{**DISK, "full_earliest": 9.8}]},
         ["12 days, at the earliest in 10."]),
        ("relation-sizes", {"relation-sizes": [TABLE], "disks": [DATABASE]}, ["LAKEHOUSE_SOURCE_DISK_BYTES", ".env"]),
        ("stream-positions", {"stream-positions": [STREAM]}, ["Not known", "3 in presence"]),
        ("stream-positions", {"stream-positions": [STREAM], "idle-writers": [WRITER]},
         ["No: ", "2026-11-20 12:00 UTC", "3 in presence"]),
        ("stream-positions", {"stream-positions": [STREAM], "idle-writers": [{**WRITER, "minutes_ago": 31}]},
         ["Not known: ", "2026-11-20 12:00 UTC", "Airflow", "3 in presence"]),
        ("stream-positions", {"stream-positions": [{**STREAM, "missing_writers": "b", "safe_bound": None},
                                                   {**STREAM, "stream": "caches", "safe_bound": None,
                                                    "rule": "no positions"}]},
         ["presence (b has no position)", "caches (no positions)."]),
        ("background-updates", {"background-updates": [UPDATE], "postgresql": [SERVER]},
         ["not yet", "sort_rooms", "release 7 (2026-11-20 12:00 UTC)", "16.14", "2099-01-01"]),
        ("background-updates", {"postgresql": [{**SERVER, "supported_until": date(2020, 1, 1)}]},
         ["yes", "No run has checked", "no support since 2020-01-01: plan"]),
        ("background-updates", {"postgresql": [{**SERVER, "supported_until": TODAY + timedelta(days=179)}]},
         [f"is supported until {TODAY + timedelta(days=179)}: plan"]),
        ("background-updates", {"upgrade-checks": [CHECK]}, ["yes"]),
        ("background-updates", {"upgrade-checks": [CHECK, {**CHECK, "fault": "a sequence is behind"}]},
         ["no. a sequence is behind"]),
        ("growing-rooms", {"growing-rooms": [ROOM, {**ROOM, "room_id": "!a"}]},
         ["!b:x, b,", "6 of 98", "until 2026-11-09", "2 in the 7 days before."]),
        ("growing-rooms", {"growing-rooms": [{**ROOM, "name": None, "last_day": date(2026, 11, 6)}]},
         ["!b:x received", "2026-11-06."]),
        ("federation-delay", {"federation-delay": [DELAY, {**DELAY, "server": "near", "p95_ms": 5}],
                              "silent-servers": [SILENT]},
         ["far.example", "the slowest of its 3", "2.0 h", "mute", "2026-11-20 12:00 UTC", "3.3 days"]),
        ("federation-delay", {"federation-delay": [{**DELAY, "events": 20}]},
         ["Late: far", "5% of its 20", "2.0 h or more"]),
        ("federation-delay", {"federation-delay": [{**DELAY, "p95_ms": 800}]}, ["None is late", "far", "800 ms"]),
        ("runs", {"runs": [{**RUN, "release": 3}, RUN]}, ["release 4", "80.0 s", "41.5 s", "5 rows"]),
        ("findings", {"findings": [{**FINDING, "severity": "info"}]},
         ["Not completely known", "(7 of severity info", "make ui"]),
        ("findings", {"index-checks": [{"indexes": 4, "compared": 0}]}, ["Not completely known", "None of 4"]),
        ("findings", {"index-checks": [{"indexes": 4, "compared": 3}, {"indexes": 1, "compared": 1}]},
         ["No. ", "4 of 5"]),
        ("findings", {"findings": [FINDING]}, ["Perhaps", "7", "event_lost"]),
        ("findings", {"findings": [{**FINDING, "severity": "fail"}]}, ["Yes", "7"]),
        ("state-rooms", {"state-rooms": [ROOMS]}, [PANELS["compression"].empty, "3 of 9", "33%"]),
        ("state-rooms", {"state-rooms": [ROOMS], "relation-sizes": [{**TABLE, "name": "state_groups_state"}]},
         ["3 of 9", "about 683 B of the 2.0 KiB"]),
        ("compression", {"state-rooms": [ROOMS], "compression": [SAVED]},
         ["5 of 20", "25%", "1.0 KiB"]),
        ("reports", {"reports": [REPORT]}, ["1 open report", "by @me:x", "user @bad:x"]),
    ],
)  # fmt: skip
def test_an_answer_has_the_values_of_its_rows(anchor: str, rows: dict[str, Any], parts: list[str]) -> None:
    text = answer(rows, anchor)
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize("anchor", ["findings", "background-updates"])
def test_the_answer_names_a_missing_table(anchor: str) -> None:
    panels = {id: PanelRows(panel, [], "The lake has no such table yet.") for id, panel in PANELS.items()}
    answers = build_answers(panels, Status(Level.GOOD, None, "", "", ()), NO_DIFF)
    assert [item.text for item in answers if item.anchor == anchor] == ["The lake has no such table yet."]


def test_an_incident_decides_whether_a_stream_is_stuck() -> None:
    text = answer({"stream-positions": [STREAM]}, "stream-positions", [STUCK])
    assert text.startswith("Yes: stream events")


def test_hostile_names_are_short_and_printable() -> None:
    text = answer({"reports": [{**REPORT, "reporter_id": "\x1b[31m" + "x" * 500}]}, "reports")
    assert "\x1b" not in text
    assert len(text) < 250


def review_anchors(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    panels = {id: PanelRows(panel, rows.get(id, []), panel.empty) for id, panel in PANELS.items()}
    return [item.anchor for item in list_review_items(panels)]


def test_the_most_harmful_items_are_first() -> None:
    rows: dict[str, Sequence[Row]] = {
        "reports": [REPORT],
        NEWEST_EVENT.id: [{"received_at": NOON, "days": 4.0, "future_events": 0}],
        "silent-servers": [SILENT],
        "background-updates": [UPDATE],
        "postgresql": [{**SERVER, "supported_until": date(2020, 1, 1)}],
        "upgrade-checks": [{**CHECK, "fault": "a sequence is behind"}],
        "disks": [DISK, {**DISK, "full_in_days": 500}],
        "findings": [FINDING, {**FINDING, "severity": "info"}],
    }
    expected = ["disks", "upgrade-checks", "findings", "postgresql", "events-by-type", "background-updates",
                "silent-servers", "reports"]  # fmt: skip
    assert review_anchors(rows) == expected
    assert review_anchors(rows | {"findings": [{**FINDING, "severity": "fail"}]}) == [
        "findings", "disks", "upgrade-checks", *expected[3:]
    ]  # fmt: skip
    assert review_anchors({NEWEST_EVENT.id: [{"received_at": NOON, "days": 1.0, "future_events": 0}]}) == []
    assert review_anchors({NEWEST_EVENT.id: [{"received_at": None, "days": None, "future_events": 1}]}) == [
        "events-by-type"
    ]


@pytest.mark.parametrize(
    ("rows", "has_items", "level", "unchecked"),
    [
        ({}, False, Level.GOOD, ["stream", "index"]),
        ({"idle-writers": [WRITER], "index-checks": [{"compared": 0}]}, True, Level.WARNING, ["index"]),
        ({"idle-writers": [WRITER], "index-checks": [{"compared": 1}]}, False, Level.GOOD, []),
        (
            {"idle-writers": [{**WRITER, "minutes_ago": 31}], "index-checks": [{"compared": 1}]},
            False,
            Level.GOOD,
            ["stream"],
        ),
    ],
)
def test_a_good_state_names_the_unchecked_parts(
    rows: dict[str, Sequence[Row]], has_items: bool, level: Level, unchecked: list[str]
) -> None:
    panels = {id: PanelRows(panel, rows.get(id, []), panel.empty) for id, panel in PANELS.items()}
    release = Release(3, "", NOON, NOON, "", "", "", {}, {}, {}, 0, 0, NOON, [], NOON)
    status = grade_status(Status(Level.GOOD, release, "", "", ()), panels, [ReviewItem("", "")] * has_items)
    assert status.level is level
    assert [name for name in ("stream", "index") if name in status.headline] == unchecked


def test_rest_rows_complete_the_totals() -> None:
    size_rows: list[Row] = [
        {**dict.fromkeys(field.name for field in fields(SizeRow)), "kind": kind, "schema_name": schema, "name": "x",
         "bytes": bytes, "measured_at": NOON}
        for kind, schema, bytes in (("database", None, 90), ("table", "public", 40), ("index", "public", 20))
    ]  # fmt: skip
    rows = growth._add_others(size_rows)
    assert [(row["kind"], row["bytes"]) for row in rows] == [("table", 40), ("index", 20), ("others", 30)]
    assert [row["kind"] for row in growth._add_others(size_rows[1:])] == ["table", "index"]
    room = {"room": "a", "room_id": "!a", "state_rows": 5, "copied_rows": 2, "all_rows": 9, "all_copied_rows": 3}
    rest = state._add_others([room])[1]
    assert (rest["room_id"], rest["state_rows"], rest["copied_rows"]) == (None, 4, 1)
    assert len(state._add_others([{**room, "all_rows": 5, "all_copied_rows": 2}])) == 1


def test_an_unread_panel_is_a_review_item() -> None:
    panels = {id: PanelRows(panel, [], "", is_unread=id == "disks") for id, panel in PANELS.items()}
    assert [item.anchor for item in list_review_items(panels)] == ["disks"]


@pytest.mark.parametrize(
    ("hours", "is_previous", "period"),
    [
        (24, True, "since yesterday"),
        (0.6, True, "since the previous release (36.0 min earlier)"),
        (12, False, "since release 3 (12.0 h earlier)"),
        (96, True, "since the previous release (4.0 days earlier)"),
    ],
)
def test_the_time_between_two_releases_is_named(hours: float, is_previous: bool, period: str) -> None:
    before, after = (
        Release(number, "", NOON, NOON, "", "", "", {}, {}, {}, 0, 0, at, [], at)
        for number, at in ((3, NOON), (4, NOON + timedelta(hours=hours)))
    )
    assert name_period(before, after, is_previous=is_previous) == period
