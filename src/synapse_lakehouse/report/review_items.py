"""List facts that are no incident but that an operator should review, the most harmful first. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from synapse_lakehouse.catalogue.postgres_end_of_support import describe_support
from synapse_lakehouse.report.answers import describe_silence, is_watched
from synapse_lakehouse.report.format_values import shorten
from synapse_lakehouse.report.overall_status import NEWEST_EVENT, Level, Status
from synapse_lakehouse.report.read_panels import PanelRows

_NOTICE_DAYS: Final = 90
"""A disk that will be full within this number of days is listed."""
_OLD_DAYS: Final = 2


@dataclass(frozen=True)
class ReviewItem:
    """A sentence, and the ID of the panel with its details."""

    text: str
    anchor: str


def list_review_items(panels: Mapping[str, PanelRows]) -> list[ReviewItem]:
    """Return the items in the rows of ``panels`` by ID, the most harmful first."""
    items = [*_list_findings(panels, "fail"), *_list_full_disks(panels), *_list_start_faults(panels)]
    items += [
        *_list_findings(panels, "warn"),
        *_list_unsupported_versions(panels),
        *_list_old_events(panels),
        *_list_updates(panels),
        *_list_servers(panels),
    ]
    return [*items, *_list_reports(panels), *_list_unread(panels)]


def grade_status(status: Status, panels: Mapping[str, PanelRows], items: Sequence[ReviewItem]) -> Status:
    """Return ``status`` with the unmade checks added to its headline.

    If there are ``items``, the level GOOD becomes WARNING.
    """
    if status.release is None:
        return status
    missing = [] if is_watched(panels["idle-writers"]) else ["whether a stream is stuck"]
    if not any(row["compared"] for row in panels["index-checks"].rows):
        missing.append("whether an index is damaged")
    level = Level.WARNING if items and status.level is Level.GOOD else status.level
    unchecked = f" Not checked yet: {' and '.join(missing)}." if missing else ""
    return replace(status, level=level, headline=status.headline + unchecked)


def _list_findings(panels: Mapping[str, PanelRows], severity: str) -> Iterator[ReviewItem]:
    counts = [row["findings"] for row in panels["findings"].rows if row["severity"] == severity]
    if counts:
        yield ReviewItem(f"Checks of Synapse's database have {_count(sum(counts), severity + ' finding')}.", "findings")


def _list_full_disks(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    for row in panels["disks"].rows:
        days = row["full_in_days"]
        if days is not None and days <= _NOTICE_DAYS:
            yield ReviewItem(f"The disk of the {shorten(row['name'], 60)} is full in {days:,.0f} days.", "disks")


def _list_unsupported_versions(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    for row in panels["postgresql"].rows:
        version, end, today = shorten(row["server_version"], 20), row["supported_until"], date.today()  # noqa: DTZ011
        support, is_due = describe_support(version, end, today) if end else ("", False)
        if is_due:
            yield ReviewItem(f"{support}: plan an upgrade.", "postgresql")


def _list_start_faults(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    faults = [row["fault"] for row in panels["upgrade-checks"].rows if row["fault"]]
    if faults:
        yield ReviewItem(f"Synapse may not start: {shorten(faults[0], 200)}", "upgrade-checks")


def _list_updates(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    names = [shorten(row["update_name"], 60) for row in panels["background-updates"].rows]
    if names:
        pending = f"Background update {names[0]} is" if len(names) == 1 else f"{len(names)} background updates are"
        yield ReviewItem(f"{pending} pending: do not upgrade Synapse yet.", "background-updates")


def _list_old_events(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    for row in panels[NEWEST_EVENT.id].rows:
        if row["future_events"]:
            text = (
                f"{_count(row['future_events'], 'event')} have a time of receipt after tomorrow: check the clock of "
                "Synapse's machine. Charts omit them."
            )
            yield ReviewItem(text, "events-by-type")
        if row["days"] is not None and row["days"] > _OLD_DAYS:
            text = (
                f"The newest event is {row['days']:.1f} days old, which is normal for the shipped sample only. Check "
                "that Synapse runs, and that `SYNAPSE_DSN` is its database."
            )
            yield ReviewItem(text, "events-by-type")


def _list_servers(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    rows = panels["silent-servers"].rows
    if rows:
        yield ReviewItem(describe_silence(rows), "silent-servers")


def _list_reports(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    count = len(panels["reports"].rows)
    if count:
        yield ReviewItem(f"{_count(count, 'report')} of users wait for a moderator.", "reports")


def _list_unread(panels: Mapping[str, PanelRows]) -> Iterator[ReviewItem]:
    for id, panel in panels.items():
        if panel.is_unread:
            yield ReviewItem(f"The part “{panel.panel.title}” of this page could not be read.", id)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
