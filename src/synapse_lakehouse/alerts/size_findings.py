"""Derive findings about the sizes of Synapse's database and of the lake. Pure."""

from collections.abc import Sequence
from typing import Final

from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
from synapse_lakehouse.printable_text import format_bytes
from synapse_lakehouse.sizes.autovacuum import OverdueVacuum, find_overdue_vacuum
from synapse_lakehouse.sizes.growth import Growth
from synapse_lakehouse.sizes.summary import SizeSummary

_FULL_DAYS: Final = 14
"""A disk that will be full within this number of days raises an alert."""


def check_sizes(summaries: Sequence[SizeSummary]) -> list[AlertFinding]:
    """Return findings about faster growth, overdue vacuums, and disks that may be full within two weeks."""
    findings = []
    for summary in summaries:
        subject = summary.latest.label
        if summary.earlier_growth and summary.growth:
            description = (
                f"grew by {_format_growth(summary.growth)} in the last week, "
                f"and by {_format_growth(summary.earlier_growth)} in the four weeks before"
            )
            findings.append(AlertFinding(IncidentKind.GROWTH_CHANGED, subject, description))
        if overdue := find_overdue_vacuum(summary):
            findings.append(AlertFinding(IncidentKind.AUTOVACUUM_BEHIND, subject, _describe(overdue)))
        if (finding := _check_forecast(summary)) is not None:
            findings.append(finding)
    return findings


def _check_forecast(summary: SizeSummary) -> AlertFinding | None:
    days = summary.forecast.days if summary.forecast else None
    if days is None or days > _FULL_DAYS or summary.growth is None:
        return None
    description = (
        f"its disk will be full in {days:.0f} days: {format_bytes(summary.latest.free_bytes)} are free, and its size "
        f"grows by {_format_growth(summary.growth)}"
    )
    return AlertFinding(IncidentKind.DISK_FILLING, summary.latest.label, description)


def _describe(overdue: OverdueVacuum) -> str:
    latest, reasons = overdue.latest, []
    if overdue.for_dead_rows:
        reasons.append(f"{latest.dead_rows:,} dead rows (autovacuum's threshold: {latest.vacuum_threshold:,})")
    if overdue.for_transaction_ids:
        reasons.append(
            f"transaction IDs {latest.transaction_id_age:,} transactions old (autovacuum_freeze_max_age: "
            f"{latest.freeze_max_age:,})"
        )
    last = f"{latest.last_vacuum:%Y-%m-%d %H:%M} UTC" if latest.last_vacuum else "unknown"
    disabled = "; autovacuum is disabled for it" if latest.autovacuum_enabled is False else ""
    since = f"{overdue.since.measured_at:%Y-%m-%d %H:%M} UTC"
    return f"{' and '.join(reasons)}; VACUUM has been due since {since} or earlier; last VACUUM: {last}{disabled}"


def _format_growth(growth: Growth) -> str:
    interval = "" if growth.low is None else f" ({format_bytes(growth.low)} to {format_bytes(growth.high)})"
    return f"{format_bytes(growth.bytes_per_day)} a day{interval}"
