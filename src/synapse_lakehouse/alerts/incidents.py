"""Incidents: compare the findings of a report with the open incidents; begin and end incidents. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final


class IncidentKind(StrEnum):
    """Kinds of incidents. The value names the runbook, ``docs/runbooks/<value>.md``."""

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
    INTEGRITY = "integrity"
    REPLICATION = "replication"
    TAP_SILENT = "tap-silent"
    RUN_FAILED = "run-failed"
    RELEASE_OVERDUE = "release-overdue"


WARNING_KINDS: Final = frozenset(
    {
        IncidentKind.AUDIT_WARNED,
        IncidentKind.INTEGRITY,
        IncidentKind.REPLICATION,
        IncidentKind.TAP_SILENT,
        IncidentKind.GAP_BUDGET,
        IncidentKind.STANDING_STILL,
    }
)
"""Kinds with severity "warning"."""


@dataclass(frozen=True)
class AlertFinding:
    """A problem that exists at present.

    ``subject``: the object concerned, such as ``stream events``. ``description``: with numbers and
    without message content. ``consequence``: the effect while the problem lasts, or "".
    """

    kind: IncidentKind
    subject: str
    description: str
    consequence: str = ""


@dataclass(frozen=True)
class IncidentEvent:
    """The beginning or the end of an incident: a row of ``audit.incidents``.

    ``scope``: the DAG or task that reports it, and ends it by a report without it. ``page``: URL with details, or "".
    """

    id: str
    at: datetime
    scope: str
    kind: IncidentKind
    subject: str
    description: str
    begins: bool
    page: str
    consequence: str = ""


def list_open_incidents(events: Iterable[IncidentEvent], scope: str) -> list[IncidentEvent]:
    """The begin events of the incidents that are open in ``scope``.

    :param events: in the order in which they were recorded.
    """
    last = {(one.kind, one.subject): one for one in events if one.scope == scope}
    return [one for one in last.values() if one.begins]


def is_open_in_another_scope(events: Iterable[IncidentEvent], one: IncidentEvent) -> bool:
    """Whether the same kind and subject is open in another scope, which then sends the message about its end."""
    same = (other for other in events if (other.kind, other.subject) == (one.kind, one.subject))
    last = {other.scope: other.begins for other in same if other.scope != one.scope}
    return any(last.values())


def merge_findings(found: Iterable[AlertFinding]) -> list[AlertFinding]:
    """``found`` with one finding for each kind and subject; it has the descriptions of all, in their order."""
    alike: dict[tuple[IncidentKind, str], list[AlertFinding]] = {}
    for one in found:
        alike.setdefault((one.kind, one.subject), []).append(one)
    return [
        replace(several[0], description="\n".join(finding.description for finding in several))
        for several in alike.values()
    ]


def compute_incident_events(
    going_on: Sequence[IncidentEvent], found: Collection[AlertFinding], scope: str, page: str, at: datetime
) -> list[IncidentEvent]:
    """The begin and end events that follow from ``found``, all problems of ``scope`` at the time ``at``."""
    wrong = {(one.kind, one.subject): one for one in merge_findings(found)}
    known = {(one.kind, one.subject) for one in going_on}
    over = [one for one in going_on if (one.kind, one.subject) not in wrong]

    def event(one: AlertFinding | IncidentEvent, *, begins: bool) -> IncidentEvent:
        name = f"{at:%Y%m%dT%H%M%S.%f} {one.kind} {one.subject}"
        consequence = one.consequence if begins else ""
        return IncidentEvent(name, at, scope, one.kind, one.subject, one.description, begins, page, consequence)

    begun = [event(one, begins=True) for key, one in wrong.items() if key not in known]
    return begun + [event(one, begins=False) for one in over]
