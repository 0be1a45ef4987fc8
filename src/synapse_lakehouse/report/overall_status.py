"""The state of the lakehouse in one sentence: the newest release, the open problems, and what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from synapse_lakehouse.alerts.incidents import WARNING_KINDS, IncidentKind
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.homeservers import format_command
from synapse_lakehouse.report.format_values import shorten
from synapse_lakehouse.report.panel import Panel, Row, draw_no_chart
from synapse_lakehouse.report.read_panels import PanelRows

# The kind page-missing is left out: a page that is read is not missing, but its incident ends after the page's write.
INCIDENTS: Final = Panel(
    "incidents",
    "Open incidents",
    "",
    "with events as (from audit.incidents where sink is null)"
    ' select kind, subject, min("at") as since, max_by(description, "at") as description,'
    ' max_by(consequence, "at") as consequence'
    " from events where begins and kind <> 'page-missing' and not exists ("
    " from events as ends where not ends.begins and (ends.scope, ends.kind, ends.subject)"
    ' = (events.scope, events.kind, events.subject) and ends."at" >= events."at")'
    " group by kind, subject order by since desc limit 50",
    (),
    "No incident is open.",
    draw_no_chart,
)

NEWEST_EVENT: Final = Panel(
    "newest-event",
    "Newest event",
    "",
    "select max(received_at) filter (received_at < now() + interval 1 day) as received_at,"
    " date_diff('hour', max(received_at) filter (received_at < now() + interval 1 day), now()) / 24.0 as days,"
    " count(*) filter (received_at >= now() + interval 1 day) as future_events"
    " from gold.events having count(received_at) > 0",
    (),
    "No event has been received yet.",
    draw_no_chart,
)


class Level(StrEnum):
    """How urgent the state is."""

    GOOD = "good"
    WARNING = "warning"
    SERIOUS = "serious"


@dataclass(frozen=True)
class Problem:
    """An open incident. ``kind`` is also the name of its runbook."""

    level: Level
    kind: str
    subject: str
    description: str
    consequence: str
    since: datetime

    @property
    def title(self) -> str:
        """Return the kind as words."""
        return self.kind.replace("-", " ").replace("ids", "IDs")


@dataclass(frozen=True)
class Status:
    """The state. ``headline``: a sentence about incidents and drift. ``next_step``: the advice, or ""."""

    level: Level
    release: Release | None
    headline: str
    next_step: str
    problems: Sequence[Problem]


def describe_status(release: Release | None, incidents: PanelRows, homeserver: str | None = None) -> Status:
    """Return the state of the lake with the latest ``release`` and the open ``incidents``.

    :param homeserver: the homeserver's name, if the installation has several homeservers.
    """
    if incidents.is_unread:
        step = f"Run {format_command('doctor', homeserver)}."
        return Status(Level.WARNING, release, "It is unknown whether an incident is open.", step, ())
    problems = sorted(map(_problem, incidents.rows), key=lambda problem: problem.level is not Level.SERIOUS)
    level = problems[0].level if problems else Level.GOOD
    if release is None and not problems:
        return Status(Level.WARNING, None, "The lake has no release yet.", advise_run(homeserver), ())
    if not problems:
        partial = f" It lacks {', '.join(release.partial)}." if release and release.partial else ""
        level = Level.WARNING if partial else Level.GOOD
        step = f"Correct the drift that {format_command('doctor', homeserver)} reports." if partial else ""
        return Status(level, release, f"No incident is open.{partial}", step, ())
    first, others = problems[0], len(problems) - 1
    more = f", and {others} more {'incident is' if others == 1 else 'incidents are'} open" if others else ""
    headline = f"{first.title[0].upper()}{first.title[1:]}: {first.subject}{more}."
    return Status(level, release, headline, f"Follow the runbook “{first.kind}”.", problems)


def advise_run(homeserver: str | None) -> str:
    """Return the advice to start a run."""
    return f"Run {format_command('run', homeserver) if homeserver else '`make run`'}."


def _problem(row: Row) -> Problem:
    level = Level.WARNING if row["kind"] in {kind.value for kind in WARNING_KINDS} else Level.SERIOUS
    description, consequence = (shorten(row[name] or "", 400) for name in ("description", "consequence"))
    kind = row["kind"] if row["kind"] in {kind.value for kind in IncidentKind} else IncidentKind.RUN_FAILED.value
    return Problem(level, kind, shorten(row["subject"] or ""), description, consequence, row["since"])
