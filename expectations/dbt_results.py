"""What is expected of what dbt built and tested.

Measures of a table, in dbt's words: ``status`` of its model; ``<test>.status`` and ``<test>.failures`` of each test.
"""

from expectations.metric_expectation import MetricExpectation, Metrics, format_count

_WHY = {
    "error": "it could not run: dbt's log says why",
    "runtime error": "it could not run: dbt's log says why",
    "skipped": "it was skipped, because what it needs was not built",
    "partial success": "it was built in part",
}


class ExpectModelBuilt(MetricExpectation):
    """dbt built the model."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        status = str(measures["status"])
        return status == "success", "built" if status == "success" else _WHY.get(status, status)


class ExpectDbtTest(MetricExpectation):
    """One of dbt's tests of the table found nothing."""

    test: str

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        status = measures[f"{self.test}.status"]
        if status in _WHY:
            return False, _WHY[status]
        return status == "pass", f"{format_count(measures.get(f'{self.test}.failures', 0), 'row')} against it"
