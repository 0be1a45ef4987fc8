"""Compare the findings of a report with the open incidents; begin and end incidents. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final


class IncidentKind(StrEnum):
    """Kinds of incidents. The value is the name of the runbook: ``docs/runbooks/<value>.md``."""

    LOST_IDS = "lost-ids"
    LATE_IDS = "late-ids"
    DUPLICATE_IDS = "duplicate-ids"
    CHANGED_ROWS = "changed-rows"
    POSITION_WENT_BACK = "position-went-back"
    SEQUENCE_BEHIND = "sequence-behind"
    WRITER_VANISHED = "writer-vanished"
    GAP_BUDGET = "gap-budget"
    STANDING_STILL = "standing-still"
    AUDIT_FAILED = "audit-failed"
    AUDIT_WARNED = "audit-warned"
    DATA_LOSS = "data-loss"
    WRONG_ANSWERS = "wrong-answers"
    INTEGRITY = "integrity"
    REPLICATION = "replication"
    TAP_SILENT = "tap-silent"
    RUN_FAILED = "run-failed"
    RELEASE_OVERDUE = "release-overdue"
    GROWTH_CHANGED = "growth-changed"
    AUTOVACUUM_BEHIND = "autovacuum-behind"
    DISK_FILLING = "disk-filling"
    NEW_REPORT = "new-report"
    PAGE_MISSING = "page-missing"


WARNING_KINDS: Final = frozenset(
    {
        IncidentKind.AUDIT_WARNED,
        IncidentKind.WRONG_ANSWERS,
        IncidentKind.INTEGRITY,
        IncidentKind.REPLICATION,
        IncidentKind.TAP_SILENT,
        IncidentKind.GAP_BUDGET,
        IncidentKind.STANDING_STILL,
        IncidentKind.GROWTH_CHANGED,
        IncidentKind.AUTOVACUUM_BEHIND,
        IncidentKind.PAGE_MISSING,
        IncidentKind.NEW_REPORT,
    }
)
"""Kinds with severity "warning"."""

NOTICE_KINDS: Final = frozenset({IncidentKind.NEW_REPORT})
"""Kinds whose incidents end by age. The end is recorded, but no message is sent."""


@dataclass(frozen=True)
class AlertFinding:
    """A problem that exists at present.

    ``subject``: the object concerned, such as ``stream events``. ``description``: the problem, with numbers but without
    message content. ``consequence``: the effect of the problem, or "". ``details``: IDs that replace the description in
    messages, or "". The lake does not store these IDs, because their rows may be erased. ``is_growing``: whether
    another message is sent although the incident is already open.
    """

    kind: IncidentKind
    subject: str
    description: str
    consequence: str = ""
    details: str = ""
    is_growing: bool = False


@dataclass(frozen=True)
class IncidentEvent:
    """The beginning or the end of an incident: a row of ``audit.incidents``. A growing incident begins several times.

    ``scope``: the DAG or task whose reports begin and end the incident. ``kind``: an :class:`IncidentKind`. After a
    downgrade it may be a kind that only the later version has. ``page``: URL with details, or "". ``details``: IDs of
    the present finding, for messages. The table has no such column.
    """

    id: str
    at: datetime
    scope: str
    kind: str
    subject: str
    description: str
    begins: bool
    page: str
    consequence: str = ""
    details: str = ""

    @property
    def text(self) -> str:
        """Return the text of a message: the details, or else the description."""
        return self.details or self.description


def list_open_incidents(events: Iterable[IncidentEvent], scope: str) -> list[IncidentEvent]:
    """Return the begin events of the incidents that are open in ``scope``.

    :param events: in the order in which they were recorded.
    """
    last = {(event.kind, event.subject): event for event in events if event.scope == scope}
    return [event for event in last.values() if event.begins]


def is_open_in_another_scope(events: Iterable[IncidentEvent], event: IncidentEvent) -> bool:
    """Return whether another scope has an open incident of the event's kind and subject. That scope reports its end."""
    same = (other for other in events if (other.kind, other.subject) == (event.kind, event.subject))
    last = {other.scope: other.begins for other in same if other.scope != event.scope}
    return any(last.values())


def merge_findings(findings: Iterable[AlertFinding]) -> list[AlertFinding]:
    """Merge the findings with the same kind and subject into one finding that has all descriptions in their order."""
    groups: dict[tuple[IncidentKind, str], list[AlertFinding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.subject), []).append(finding)
    return [
        replace(
            group[0],
            description="\n".join(finding.description for finding in group),
            is_growing=any(finding.is_growing for finding in group),
        )
        for group in groups.values()
    ]


def compute_incident_events(
    open_incidents: Sequence[IncidentEvent], findings: Collection[AlertFinding], scope: str, page: str, at: datetime
) -> list[IncidentEvent]:
    """Return the begin and end events that ``findings`` cause at the time ``at``.

    :param findings: all present problems of ``scope``.
    """
    merged = {(finding.kind, finding.subject): finding for finding in merge_findings(findings)}
    open_descriptions = {(incident.kind, incident.subject): incident.description for incident in open_incidents}
    ended_incidents = [incident for incident in open_incidents if (incident.kind, incident.subject) not in merged]

    def event(problem: AlertFinding | IncidentEvent, *, begins: bool) -> IncidentEvent:
        name = f"{at:%Y%m%dT%H%M%S.%f} {problem.kind} {problem.subject}"
        consequence = problem.consequence if begins else ""
        return IncidentEvent(
            name, at, scope, problem.kind, problem.subject, problem.description, begins, page, consequence
        )

    # Another try of the same run reports the same description, so it begins no growing incident again.
    new_events = [
        event(finding, begins=True)
        for key, finding in merged.items()
        if key not in open_descriptions or (finding.is_growing and finding.description != open_descriptions[key])
    ]
    return new_events + [event(incident, begins=False) for incident in ended_incidents]
