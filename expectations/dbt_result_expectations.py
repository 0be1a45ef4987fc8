"""Expectations of dbt's results.

The metrics of a table are the ``status`` of its model, and ``<test>.status`` and ``<test>.failures`` of each test. A
status is a word of dbt, such as ``success``.
"""

from expectations.metric_expectation import MetricExpectation, Metrics, format_count

_STATUS_TEXTS = {
    "error": "dbt could not run it; see dbt's log",
    "runtime error": "dbt could not run it; see dbt's log",
    "skipped": "dbt skipped it, because a model upstream was not built",
    "partial success": "dbt built a part of it",
}


class ExpectModelBuilt(MetricExpectation):
    """dbt built the model."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        status = str(metrics["status"])
        return status == "success", "built" if status == "success" else _STATUS_TEXTS.get(status, status)


class ExpectDbtTest(MetricExpectation):
    """A dbt test of the table passed."""

    test: str

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        status = metrics[f"{self.test}.status"]
        if status in _STATUS_TEXTS:
            return False, _STATUS_TEXTS[status]
        return status == "pass", f"{format_count(metrics.get(f'{self.test}.failures', 0), 'row')} failed the test"
