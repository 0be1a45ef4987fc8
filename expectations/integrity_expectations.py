"""Expectations of Synapse's database: each check of ``gold.state_integrity`` has no serious finding.

Metrics of a check are the columns of ``audit.integrity``. A finding is a fault of Synapse's database. The copy is
correct, so a finding raises an alert, but does not block a release.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from expectations.metric_expectation import WARN, MetricExpectation, Metrics, format_count
from synapse_lakehouse.room_state.integrity_check import Harm, IntegrityCheck
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS


class ExpectNoFinding(MetricExpectation):
    """Other checks explain all serious findings of the check. Findings that a healthy database has do not count."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        serious, mild = metrics["serious"], metrics["findings"] - metrics["serious"]
        unexplained, rooms, new = metrics["unexplained"], metrics["rooms"], metrics["new_findings"]
        described = format_count(serious, "finding")
        if serious:
            described += f" in {format_count(rooms, 'room')}" if rooms else ""
            described += f", {new:,} of them new since the last release"
        if serious and not unexplained:
            described += ", all explained by other checks"
        return unexplained == 0, described + (f", and {mild:,} for information" if mild else "")


def build_suite() -> list[MetricExpectation]:
    """Return one expectation for each check."""
    return [
        ExpectNoFinding(column=subject_of_check(check.name), severity=WARN, description=f"no {check.title}")
        for check in INTEGRITY_CHECKS
    ]


def collect_metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, Metrics]:
    """Return metrics by subject.

    :param rows: the run's rows of ``audit.integrity``.
    """
    return {subject_of_check(row["check_name"]): row for row in rows}


def list_growing_losses(metrics: Mapping[str, Metrics]) -> set[str]:
    """Return the subjects of the checks that search for lost data and have new findings since the last release.

    :param metrics: metrics of all checks, by subject.
    """
    return {
        subject
        for subject, counts in metrics.items()
        if counts["new_findings"] and check_of_subject(subject).harm is Harm.LOST
    }


def check_of_subject(subject: str) -> IntegrityCheck:
    """Return the check with this subject."""
    return next(check for check in INTEGRITY_CHECKS if subject_of_check(check.name) == subject)


def subject_of_check(check_name: str) -> str:
    """Return the subject of a check's expectation."""
    return f"check {check_name}"
