"""What is expected of Synapse's database as a whole: that no check of ``gold.state_integrity`` finds anything.

Measures of a check are the columns of ``audit.integrity``. What is found is Synapse's, and copied faithfully: it is
told, and holds no release back.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from expectations.metric_expectation import WARN, MetricExpectation, Metrics, format_count
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS


class ExpectNoFinding(MetricExpectation):
    """The check finds nothing but what healthy databases have, too."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        serious, mild = measures["serious"], measures["findings"] - measures["serious"]
        return serious == 0, format_count(serious, "finding") + (f", and {mild:,} for information" if mild else "")


def build_suite() -> list[MetricExpectation]:
    """One expectation for each check."""
    return [
        ExpectNoFinding(column=subject_of_check(check.name), severity=WARN, description=f"no {check.title}")
        for check in INTEGRITY_CHECKS
    ]


def collect_metrics(found: Iterable[Mapping[str, Any]]) -> dict[str, Metrics]:
    """Measures by subject.

    :param found: the run's rows of ``audit.integrity``.
    """
    return {subject_of_check(row["check_name"]): row for row in found}


def subject_of_check(check_name: str) -> str:
    """The subject of the expectation of a check."""
    return f"check {check_name}"
