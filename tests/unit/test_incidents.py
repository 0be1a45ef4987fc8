"""An incident sends one message at its begin and one at its end."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_lakehouse import catalogue
from synapse_lakehouse.alerts import live_findings
from synapse_lakehouse.alerts.incidents import (
    AlertFinding,
    IncidentEvent,
    IncidentKind,
    compute_incident_events,
    list_open_incidents,
)
from synapse_lakehouse.alerts.message import MAX_SINGLE_MESSAGES, build_messages, name_homeserver
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.streams.checks.sequences import StreamProgress, find_sequence_faults
from synapse_lakehouse.streams.watch.observe_stream import StreamObservation, observe_stream

NOW = datetime(2026, 11, 17, tzinfo=UTC)
LATE = AlertFinding(IncidentKind.LATE_IDS, "stream events", "2 ids came late")
WARNED = AlertFinding(IncidentKind.AUDIT_WARNED, "stream backfill", "no position of ep2")
FINDINGS = st.frozensets(
    st.builds(AlertFinding, st.sampled_from(IncidentKind), st.sampled_from(["a", "b"]), st.just("wrong"))
)


def list_events_by_report(reports: list[list[AlertFinding]]) -> list[list[tuple[str, bool]]]:
    """The events of each of several reports of one scope."""
    events: list[IncidentEvent] = []
    news = []
    for number, actual in enumerate(reports):
        new = compute_incident_events(
            list_open_incidents(events, "bronze"), actual, "bronze", "", NOW + timedelta(days=number)
        )
        news.append([(item.subject, item.begins) for item in new])
        events += new
    return news


def test_an_incident_has_a_begin_and_an_end() -> None:
    assert list_events_by_report([[], [LATE], [LATE, WARNED], [LATE], [], [LATE]]) == [
        [],
        [("stream events", True)],
        [("stream backfill", True)],
        [("stream backfill", False)],
        [("stream events", False)],
        [("stream events", True)],
    ]


def test_scopes_do_not_end_each_other_s_incidents() -> None:
    (begin_events,) = compute_incident_events([], [LATE], "bronze", "", NOW)
    assert list_open_incidents([begin_events], "streams") == []
    assert list_open_incidents([begin_events], "bronze") == [begin_events]


@given(st.lists(FINDINGS, max_size=6))
def test_open_incidents_are_those_of_the_last_report(reports: list[frozenset[AlertFinding]]) -> None:
    events: list[IncidentEvent] = []
    for number, actual in enumerate(reports):
        events += compute_incident_events(
            list_open_incidents(events, "s"), actual, "s", "", NOW + timedelta(minutes=number)
        )
        assert {(incident.kind, incident.subject) for incident in list_open_incidents(events, "s")} == {
            (item.kind, item.subject) for item in actual
        }
    assert len({event.id for event in events}) == len(events)


def test_a_message_has_the_fault_time_and_runbook() -> None:
    (begin_events,) = compute_incident_events([], [LATE], "bronze", "https://lake/docs/1.html", NOW)
    (message,) = build_messages([begin_events], "example.org", "https://runbooks")
    assert message.title == "example.org: late ids: stream events"
    assert message.body.splitlines() == [
        "2 ids came late",
        "since 2026-11-17 00:00 UTC",
        "What to do: https://runbooks/late-ids.md",
        "More: https://lake/docs/1.html",
    ]
    (over,) = build_messages(
        compute_incident_events([begin_events], [], "bronze", "", NOW), "example.org", "https://runbooks"
    )
    assert over.title == "example.org: late ids: stream events — ended"
    assert over.is_resolution


def test_the_consequence_is_in_the_alert_only() -> None:
    late = replace(LATE, consequence="nothing is published while this is so")
    more = AlertFinding(IncidentKind.LATE_IDS, "stream events", "1 more", "a warning")
    (begin_events,) = compute_incident_events([], [late, more], "bronze", "", NOW)
    (message,) = build_messages([begin_events], "example.org", "docs")
    assert message.body.splitlines()[:3] == ["2 ids came late", "  1 more", "nothing is published while this is so"]
    (over,) = build_messages(compute_incident_events([begin_events], [], "bronze", "", NOW), "example.org", "docs")
    assert over.body.splitlines() == ["2 ids came late", "  1 more", "ended at 2026-11-17 00:00 UTC"]


def test_a_storm_is_one_message() -> None:
    actual = [
        AlertFinding(IncidentKind.LATE_IDS, f"stream {number}", f"id {number} late\nrun r")
        for number in range(MAX_SINGLE_MESSAGES + 1)
    ]
    (message,) = build_messages(compute_incident_events([], actual, "bronze", "", NOW), "example.org", "docs/runbooks")
    assert message.title == "example.org: 6 incidents began or ended at once"
    assert "6 times late ids (docs/runbooks/late-ids.md)" in message.body
    assert "- late ids: stream 4: id 4 late\n- late" in message.body
    assert len(message.events) == len(actual)


def test_a_message_of_many_incidents_is_short_and_complete() -> None:
    actual = [
        AlertFinding(IncidentKind.LATE_IDS, f"stream {number}", "late", "nothing is published") for number in range(4)
    ]
    begin_events = compute_incident_events([], actual, "bronze", "https://lake/docs/1.html", NOW)
    begin_events += compute_incident_events([], [WARNED], "gold", "https://lake/docs/2.html", NOW)
    over = compute_incident_events(
        [replace(begin_events[0], subject="other")], [], "streams", "", NOW + timedelta(hours=1)
    )
    (message,) = build_messages([*begin_events, *over], "example.org", "docs/runbooks")
    assert message.body.splitlines()[-4:] == [
        "from 2026-11-17 00:00 UTC to 2026-11-17 01:00 UTC",
        "nothing is published",
        "More: https://lake/docs/1.html",
        "More: https://lake/docs/2.html",
    ]


@pytest.mark.parametrize("others", [0, MAX_SINGLE_MESSAGES])
def test_the_most_harmful_incident_is_first(others: int) -> None:
    kinds = [IncidentKind.INTEGRITY, IncidentKind.GAP_BUDGET, IncidentKind.WRONG_ANSWERS, IncidentKind.DATA_LOSS]
    actual = [AlertFinding(kind, "check", "wrong") for kind in kinds]
    actual += [AlertFinding(IncidentKind.RUN_FAILED, f"task {number}", "failed") for number in range(others)]
    messages = build_messages(compute_incident_events([], actual, "gold", "", NOW), "example.org", "docs")
    events = [event for message in messages for event in message.events]
    assert [event.kind for event in events if event.kind in kinds] == kinds[::-1]
    assert events[0].kind == IncidentKind.DATA_LOSS
    if others:
        lines = messages[0].body.splitlines()
        assert lines[:2] == ["1 times data loss (docs/data-loss.md)", "5 times run failed (docs/run-failed.md)"]


def test_every_kind_has_a_runbook_with_the_answers_of_one() -> None:
    folder = PROJECT_FOLDER / "docs" / "runbooks"
    assert {path.stem for path in folder.glob("*.md")} - {"README"} == {kind.value for kind in IncidentKind}
    for kind in IncidentKind:
        text = (folder / f"{kind}.md").read_text()
        for heading in ("## What it means", "## What to look at", "## What to do"):
            assert heading in text, kind


def watched(
    positions: dict[str, int], last_allocated_id: int, before: StreamObservation | None = None
) -> StreamObservation:
    """A look at ``events``, written by ep1 and ep2."""
    return observe_stream(
        catalogue.load_catalogue().stream("events"),
        positions,
        last_allocated_id,
        (),
        frozenset({"ep1", "ep2"}),
        before,
        NOW,
    )


def of_looks(now: StreamObservation) -> list[IncidentKind]:
    actual = live_findings.check_streams(
        [(catalogue.load_catalogue().stream("events"), now)], {"events": {"ep1", "ep2"}}
    )
    return [item.kind for item in actual]


def test_the_watch_finds_faults_of_streams_only() -> None:
    well = watched({"ep1": 7, "ep2": 9}, 9)
    assert of_looks(well) == []
    assert of_looks(watched({"ep1": 7, "ep2": 90}, 95, well)) == [], "an idle writer"
    assert of_looks(watched({"ep2": 9}, 9, well)) == [IncidentKind.WRITER_VANISHED]
    assert of_looks(watched({"ep1": 6, "ep2": 9}, 9, well)) == [IncidentKind.POSITION_WENT_BACK]


def test_a_regression_ends_when_it_is_undone_or_accepted() -> None:
    stream = catalogue.load_catalogue().stream("events")
    well = watched({"ep1": 90, "ep2": 900}, 900)
    restored = watched({"ep1": 80, "ep2": 800}, 900, well)
    going_on = watched({"ep1": 80, "ep2": 850}, 900, restored)
    assert [of_looks(item) for item in (restored, going_on)] == [[IncidentKind.POSITION_WENT_BACK]] * 2
    (reported,) = live_findings.check_streams([(stream, restored)], {})
    assert "ep1 from 90 to 80, ep2 from 900 to 800" in reported.description
    assert "setval('events_stream_seq', 900)" in reported.description

    passed = watched({"ep1": 91, "ep2": 901}, 902, going_on)
    assert of_looks(passed) == []
    both = frozenset({"ep1", "ep2"})
    accepted = observe_stream(
        stream, {"ep1": 80, "ep2": 860}, 900, (), both, going_on, NOW, StreamProgress(900, {"ep1": 80, "ep2": 850}, {})
    )
    assert of_looks(accepted) == []


def test_the_first_observation_reports_a_regression() -> None:
    stream = catalogue.load_catalogue().stream("events")
    released = StreamProgress(900, {"ep1": 900}, {})
    assert of_looks(observe_stream(stream, {"ep1": 800}, 950, (), frozenset({"ep1"}), None, NOW, released)) == [
        IncidentKind.POSITION_WENT_BACK
    ]


def test_all_faults_of_a_stream_are_reported() -> None:
    stream = catalogue.load_catalogue().stream("events")
    worst, mild = (
        fault.message for fault in find_sequence_faults(stream, StreamProgress(5, {"ep1": 9}, {"events": 9}))
    )
    actual = [AlertFinding(IncidentKind.SEQUENCE_BEHIND, "stream events", item) for item in (worst, mild)]
    (begin_events,) = compute_incident_events([], actual, "preflight", "", NOW)
    assert begin_events.description.splitlines() == [worst, mild]


def test_a_lake_is_overdue_after_the_configured_hours() -> None:
    hours, created = timedelta(hours=26), NOW - timedelta(hours=40)
    assert live_findings.check_releases(None, NOW - hours, hours, NOW) == []
    assert live_findings.check_releases(NOW - hours, created, hours, NOW) == []
    (finding,) = live_findings.check_releases(NOW - timedelta(hours=30), created, hours, NOW)
    assert finding.kind is IncidentKind.RELEASE_OVERDUE
    assert "30 hours old" in finding.description
    (finding,) = live_findings.check_releases(None, created, hours, NOW)
    assert "40 hours old" in finding.description


def test_a_used_tap_is_silent_after_the_configured_minutes() -> None:
    limit = timedelta(minutes=15)
    assert live_findings.check_tap(None, limit, NOW) == []
    assert live_findings.check_tap(NOW - limit, limit, NOW) == []
    assert live_findings.check_tap(NOW - timedelta(days=9), timedelta(0), NOW) == []
    (finding,) = live_findings.check_tap(NOW - timedelta(minutes=90), limit, NOW)
    assert (finding.kind, finding.description) == (
        IncidentKind.TAP_SILENT,
        "the tap has not listened for 90 minutes (limit: 15 minutes)",
    )


@pytest.mark.parametrize(
    ("name", "title"),
    [(None, "example.org"), ("example.org", "example.org"), ("test", "test (example.org)")],
    ids=["only", "same name", "another name"],
)
def test_a_title_distinguishes_homeservers_with_the_same_server_name(name: str | None, title: str) -> None:
    assert name_homeserver(name, "example.org") == title
