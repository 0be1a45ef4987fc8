"""An incident sends one message when it begins and one when it ends."""

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
    """Return the events of each report, for consecutive reports of one scope."""
    events: list[IncidentEvent] = []
    events_by_report = []
    for number, findings in enumerate(reports):
        new_events = compute_incident_events(
            list_open_incidents(events, "bronze"), findings, "bronze", "", NOW + timedelta(days=number)
        )
        events_by_report.append([(event.subject, event.begins) for event in new_events])
        events += new_events
    return events_by_report


def test_an_incident_has_a_begin_and_an_end() -> None:
    assert list_events_by_report([[], [LATE], [LATE, WARNED], [LATE], [], [LATE]]) == [
        [],
        [("stream events", True)],
        [("stream backfill", True)],
        [("stream backfill", False)],
        [("stream events", False)],
        [("stream events", True)],
    ]


def test_a_loss_that_grows_sends_another_message() -> None:
    nights = [
        AlertFinding(IncidentKind.DATA_LOSS, "check event_missing", f"{count} findings", is_growing=is_growing)
        for count, is_growing in ((48, True), (1_100, True), (1_100, True), (1_090, False))
    ]
    begin, end = ("check event_missing", True), ("check event_missing", False)
    # The third report is that of another try of the second run.
    assert list_events_by_report([[night] for night in nights] + [[]]) == [[begin], [begin], [], [], [end]]


def test_scopes_do_not_end_each_other_s_incidents() -> None:
    (begin_event,) = compute_incident_events([], [LATE], "bronze", "", NOW)
    assert list_open_incidents([begin_event], "streams") == []
    assert list_open_incidents([begin_event], "bronze") == [begin_event]


@given(st.lists(FINDINGS, max_size=6))
def test_open_incidents_are_those_of_the_last_report(reports: list[frozenset[AlertFinding]]) -> None:
    events: list[IncidentEvent] = []
    for number, findings in enumerate(reports):
        events += compute_incident_events(
            list_open_incidents(events, "s"), findings, "s", "", NOW + timedelta(minutes=number)
        )
        assert {(incident.kind, incident.subject) for incident in list_open_incidents(events, "s")} == {
            (finding.kind, finding.subject) for finding in findings
        }
    assert len({event.id for event in events}) == len(events)


def test_a_message_has_the_fault_time_and_runbook() -> None:
    (begin_event,) = compute_incident_events([], [LATE], "bronze", "https://lake/docs/1.html", NOW)
    (message,) = build_messages([begin_event], "example.org", "https://runbooks")
    assert message.title == "example.org: late ids: stream events"
    assert message.body.splitlines() == [
        "2 ids came late",
        "detected at 2026-11-17 00:00 UTC",
        "What to do: https://runbooks/late-ids.md",
        "More: https://lake/docs/1.html",
    ]
    (end_message,) = build_messages(
        compute_incident_events([begin_event], [], "bronze", "", NOW), "example.org", "https://runbooks"
    )
    assert end_message.title == "example.org: late ids: stream events — ended"
    assert end_message.is_resolution


def test_the_consequence_is_in_the_alert_only() -> None:
    late = replace(LATE, consequence="nothing is published while this is so")
    warning = AlertFinding(IncidentKind.LATE_IDS, "stream events", "1 more", "a warning")
    (begin_event,) = compute_incident_events([], [late, warning], "bronze", "", NOW)
    (message,) = build_messages([begin_event], "example.org", "docs")
    assert message.body.splitlines()[:3] == ["2 ids came late", "  1 more", "nothing is published while this is so"]
    (end_message,) = build_messages(
        compute_incident_events([begin_event], [], "bronze", "", NOW), "example.org", "docs"
    )
    assert end_message.body.splitlines() == ["2 ids came late", "  1 more", "ended at 2026-11-17 00:00 UTC"]


def test_many_incidents_are_one_message() -> None:
    findings = [
        AlertFinding(IncidentKind.LATE_IDS, f"stream {number}", f"id {number} late\nrun r")
        for number in range(MAX_SINGLE_MESSAGES + 1)
    ]
    (message,) = build_messages(
        compute_incident_events([], findings, "bronze", "", NOW), "example.org", "docs/runbooks"
    )
    assert message.title == "example.org: 6 incidents began or ended at once"
    assert "late ids: 6 (docs/runbooks/late-ids.md)" in message.body
    assert "- late ids: stream 4: id 4 late\n- late" in message.body
    assert len(message.events) == len(findings)


def test_a_message_of_many_incidents_is_short_and_complete() -> None:
    findings = [
        AlertFinding(IncidentKind.LATE_IDS, f"stream {number}", "late", "nothing is published") for number in range(4)
    ]
    begin_events = compute_incident_events([], findings, "bronze", "https://lake/docs/1.html", NOW)
    begin_events += compute_incident_events([], [WARNED], "gold", "https://lake/docs/2.html", NOW)
    end_events = compute_incident_events(
        [replace(begin_events[0], subject="other")], [], "streams", "", NOW + timedelta(hours=1)
    )
    (message,) = build_messages([*begin_events, *end_events], "example.org", "docs/runbooks")
    assert message.body.splitlines()[-4:] == [
        "from 2026-11-17 00:00 UTC to 2026-11-17 01:00 UTC",
        "nothing is published",
        "More: https://lake/docs/1.html",
        "More: https://lake/docs/2.html",
    ]


@pytest.mark.parametrize("failed_tasks", [0, MAX_SINGLE_MESSAGES])
def test_the_most_harmful_incident_is_first(failed_tasks: int) -> None:
    kinds = [IncidentKind.INTEGRITY, IncidentKind.GAP_BUDGET, IncidentKind.WRONG_ANSWERS, IncidentKind.DATA_LOSS]
    findings = [AlertFinding(kind, "check", "wrong") for kind in kinds]
    findings += [AlertFinding(IncidentKind.RUN_FAILED, f"task {number}", "failed") for number in range(failed_tasks)]
    messages = build_messages(compute_incident_events([], findings, "gold", "", NOW), "example.org", "docs")
    events = [event for message in messages for event in message.events]
    assert [event.kind for event in events if event.kind in kinds] == kinds[::-1]
    assert events[0].kind == IncidentKind.DATA_LOSS
    if failed_tasks:
        lines = messages[0].body.splitlines()
        assert lines[:2] == ["data loss: 1 (docs/data-loss.md)", "run failed: 5 (docs/run-failed.md)"]


def test_every_kind_has_a_runbook_with_all_headings() -> None:
    folder = PROJECT_FOLDER / "docs" / "runbooks"
    assert {path.stem for path in folder.glob("*.md")} - {"README"} == {kind.value for kind in IncidentKind}
    for kind in IncidentKind:
        text = (folder / f"{kind}.md").read_text()
        for heading in ("## What it means", "## What to look at", "## What to do"):
            assert heading in text, kind


def observe(
    positions: dict[str, int], last_allocated_id: int, previous: StreamObservation | None = None
) -> StreamObservation:
    """Return an observation of the stream ``events`` with the writers ep1 and ep2."""
    return observe_stream(
        catalogue.load_catalogue().stream("events"),
        positions,
        last_allocated_id,
        (),
        frozenset({"ep1", "ep2"}),
        previous,
        NOW,
    )


def finding_kinds(observation: StreamObservation) -> list[IncidentKind]:
    findings = live_findings.check_streams(
        [(catalogue.load_catalogue().stream("events"), observation)], {"events": {"ep1", "ep2"}}
    )
    return [finding.kind for finding in findings]


def test_the_watch_reports_vanished_and_regressed_writers() -> None:
    healthy = observe({"ep1": 7, "ep2": 9}, 9)
    assert finding_kinds(healthy) == []
    assert finding_kinds(observe({"ep1": 7, "ep2": 90}, 95, healthy)) == [], "an idle writer"
    assert finding_kinds(observe({"ep2": 9}, 9, healthy)) == [IncidentKind.WRITER_VANISHED]
    assert finding_kinds(observe({"ep1": 6, "ep2": 9}, 9, healthy)) == [IncidentKind.POSITION_WENT_BACK]


def test_a_regression_ends_when_it_is_undone_or_accepted() -> None:
    stream = catalogue.load_catalogue().stream("events")
    healthy = observe({"ep1": 90, "ep2": 900}, 900)
    restored = observe({"ep1": 80, "ep2": 800}, 900, healthy)
    advanced = observe({"ep1": 80, "ep2": 850}, 900, restored)
    assert [finding_kinds(observation) for observation in (restored, advanced)] == [
        [IncidentKind.POSITION_WENT_BACK]
    ] * 2
    (finding,) = live_findings.check_streams([(stream, restored)], {})
    assert "ep1 from 90 to 80, ep2 from 900 to 800" in finding.description
    assert "setval('events_stream_seq', 900)" in finding.description

    recovered = observe({"ep1": 91, "ep2": 901}, 902, advanced)
    assert finding_kinds(recovered) == []
    writers = frozenset({"ep1", "ep2"})
    accepted = observe_stream(
        stream,
        {"ep1": 80, "ep2": 860},
        900,
        (),
        writers,
        advanced,
        NOW,
        StreamProgress(900, {"ep1": 80, "ep2": 850}, {}),
    )
    assert finding_kinds(accepted) == []


def test_the_first_observation_reports_a_regression() -> None:
    stream = catalogue.load_catalogue().stream("events")
    release_progress = StreamProgress(900, {"ep1": 900}, {})
    assert finding_kinds(
        observe_stream(stream, {"ep1": 800}, 950, (), frozenset({"ep1"}), None, NOW, release_progress)
    ) == [IncidentKind.POSITION_WENT_BACK]


def test_all_faults_of_a_stream_are_reported() -> None:
    stream = catalogue.load_catalogue().stream("events")
    worst, mild = (
        fault.message for fault in find_sequence_faults(stream, StreamProgress(5, {"ep1": 9}, {"events": 9}))
    )
    findings = [AlertFinding(IncidentKind.SEQUENCE_BEHIND, "stream events", message) for message in (worst, mild)]
    (begin_event,) = compute_incident_events([], findings, "preflight", "", NOW)
    assert begin_event.description.splitlines() == [worst, mild]


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
def test_a_title_distinguishes_homeservers_of_one_server_name(name: str | None, title: str) -> None:
    assert name_homeserver(name, "example.org") == title
