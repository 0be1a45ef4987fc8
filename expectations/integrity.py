"""What is expected of Synapse's database as a whole: that no check of ``gold.state_integrity`` finds anything.

Measures of a check are the columns of ``audit.integrity``. What is found is Synapse's, and copied faithfully: it is
told, and holds no release back.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from expectations.metric_expectation import WARN, MeasureExpectation, Measures, counted
from synapse_lakehouse.room_state.integrity_checks import CHECKS


class ExpectNoFinding(MeasureExpectation):
    """The check finds nothing but what healthy databases have, too."""

    def _judge(self, measures: Measures) -> tuple[bool, str]:
        serious, mild = measures["serious"], measures["findings"] - measures["serious"]
        return serious == 0, counted(serious, "finding") + (f", and {mild:,} for information" if mild else "")


def suite() -> list[MeasureExpectation]:
    """One expectation for each check."""
    return [
        ExpectNoFinding(column=subject(check.name), severity=WARN, description=f"no {check.title}") for check in CHECKS
    ]


def measures(found: Iterable[Mapping[str, Any]]) -> dict[str, Measures]:
    """Measures by subject.

    :param found: the run's rows of ``audit.integrity``.
    """
    return {subject(row["check_name"]): row for row in found}


def subject(check_name: str) -> str:
    """The subject of the expectation of a check."""
    return f"check {check_name}"
