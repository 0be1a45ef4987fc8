"""Expectations of the replication tap: it received every stored row, or recorded a gap.

Metrics of a stream's replication are sums over the rows of ``audit.replication_coverage``. A fault is in the tap, or in
the commands of Synapse's processes; the copy is correct, so a release is not blocked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from expectations.metric_expectation import WARN, MetricExpectation, Metrics, format_count
from synapse_lakehouse.replication.coverage.token_windows import NEVER_ANNOUNCED

_LISTED_RANGES = 5


class ExpectRowsReceived(MetricExpectation):
    """The tap received each compared row, read it from the database, or recorded a gap that contains it."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        missed, ranges = metrics["unexplained"], ", ".join(metrics["missing_ranges"])
        received = f"{metrics['tokens_received']:,} received, {metrics['tokens_read']:,} read from the database"
        return (
            missed == 0,
            f"{format_count(missed, 'ID')} never announced{f': {ranges}' if ranges else ''} ({received})",
        )


class ExpectNoTokenRegression(MetricExpectation):
    """No writer announces a token lower than an earlier token."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        regressions = metrics["token_regressions"]
        return regressions == 0, f"{format_count(regressions, 'command')} with a token lower than an earlier token"


def build_suite(rows: Sequence[Mapping[str, Any]]) -> list[MetricExpectation]:
    """Return expectations of each compared stream; none without a tap.

    :param rows: the run's rows of ``audit.replication_coverage``.
    """
    expectations: list[MetricExpectation] = []
    for subject in collect_metrics(rows):
        expectations += [
            ExpectRowsReceived(
                column=subject, severity=WARN, description="the tap received every row, or recorded a gap"
            ),
            ExpectNoTokenRegression(
                column=subject, severity=WARN, description="no writer announces a token lower than an earlier token"
            ),
        ]
    return expectations


def collect_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, Metrics]:
    """Return metrics by subject."""
    by_subject: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_subject.setdefault(f"replication of {row['stream']}", []).append(row)
    return {subject: _sum_metrics(of_subject) for subject, of_subject in sorted(by_subject.items())}


def _sum_metrics(rows: Sequence[Mapping[str, Any]]) -> Metrics:
    names = ("unexplained", "token_regressions", "tokens_received", "tokens_read")
    sums = {name: sum(row[name] for row in rows) for name in names}
    ranges = [
        _format_range(missing["first_id"], missing["last_id"]) + (f" of {row['instance']}" if row["instance"] else "")
        for row in rows
        for missing in row["missing"]
        if missing["reason"] == NEVER_ANNOUNCED
    ]
    return {**sums, "missing_ranges": ranges[:_LISTED_RANGES]}


def _format_range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"
