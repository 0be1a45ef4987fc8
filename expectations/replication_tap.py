"""What is expected of the replication tap: that it got every row that is there, or knows that it missed it.

Measures of a stream's replication are sums over the rows of ``audit.replication_coverage``. What is wrong is with the
tap, or with what Synapse's processes told it; the copy is right, so no release is held back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from expectations.metric_expectation import WARN, MetricExpectation, Metrics, format_count
from synapse_lakehouse.replication.coverage.compare import NEVER_ANNOUNCED

_NAMED = 5


class ExpectRowsReceived(MetricExpectation):
    """Every row in the window was heard, or read from the database, or lies in a gap that the tap knows of."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        missed, named = measures["unexplained"], ", ".join(measures["named"])
        heard = f"{measures['heard']:,} heard, {measures['read']:,} read from the database"
        return missed == 0, f"{format_count(missed, 'id')} never announced{f': {named}' if named else ''} ({heard})"


class ExpectNoTokenRegression(MetricExpectation):
    """No writer names a token behind one that it named before."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        back = measures["went_back"]
        return back == 0, f"{format_count(back, 'command')} behind an earlier one"


def build_suite(found: Sequence[Mapping[str, Any]]) -> list[MetricExpectation]:
    """What is expected of each stream that was compared; nothing where no tap is used.

    :param found: the run's rows of ``audit.replication_coverage``.
    """
    expected: list[MetricExpectation] = []
    for subject in collect_metrics(found):
        expected += [
            ExpectRowsReceived(
                column=subject, severity=WARN, description="every row was heard, unless the tap knows that it missed it"
            ),
            ExpectNoTokenRegression(
                column=subject, severity=WARN, description="no writer goes back behind what it announced"
            ),
        ]
    return expected


def collect_metrics(found: Sequence[Mapping[str, Any]]) -> dict[str, Metrics]:
    """Measures by subject."""
    by_subject: dict[str, list[Mapping[str, Any]]] = {}
    for row in found:
        by_subject.setdefault(f"replication of {row['stream']}", []).append(row)
    return {subject: _summed(rows) for subject, rows in sorted(by_subject.items())}


def _summed(rows: Sequence[Mapping[str, Any]]) -> Metrics:
    sums = {name: sum(row[name] for row in rows) for name in ("unexplained", "went_back", "heard", "read")}
    named = [
        (str(one["first_id"]) if one["first_id"] == one["last_id"] else f"{one['first_id']}..{one['last_id']}")
        + (f" of {row['instance']}" if row["instance"] else "")
        for row in rows
        for one in row["missing"]
        if one["why"] == NEVER_ANNOUNCED
    ]
    return {**sums, "named": named[:_NAMED]}
