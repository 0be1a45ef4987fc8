"""Base classes of the expectations, and the data frame of metrics that Great Expectations validates.

The frame has one column for each subject and one row for each metric. A subject is a table (``bronze.events``), a
stream (``stream events``), or a check. So a suite's page in Data Docs has one section for each subject.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import ColumnAggregateExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.column_aggregate_metric_provider import (
    ColumnAggregateMetricProvider,
    column_aggregate_value,
)

Metrics = Mapping[str, Any]
"""Metrics of one subject by name. A metric that was not measured is absent."""

FAIL, WARN = FailureSeverity.CRITICAL, FailureSeverity.WARNING
"""Severity of an expectation that is not met: FAIL blocks publishing, WARN is only a warning."""

_METRIC = "column.subject_metrics"


def build_metrics_frame(subjects: Mapping[str, Metrics]) -> pd.DataFrame:
    """Return a frame with one column for each subject and one row for each metric. None is a metric without a value."""
    names = sorted({name for metrics in subjects.values() for name in metrics})
    columns = {subject: [metrics.get(name) for name in names] for subject, metrics in subjects.items()}
    return pd.DataFrame(columns, index=names, dtype=object)


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun, such as ``1 row`` or ``1,250 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class SubjectMetrics(ColumnAggregateMetricProvider):
    """Great Expectations' metric that returns all metrics of a column's subject."""

    metric_name = _METRIC

    @column_aggregate_value(engine=PandasExecutionEngine)
    def _pandas(cls, column: "pd.Series[Any]", **_: object) -> dict[str, Any]:
        return {str(name): value for name, value in column.items() if value is not None}


class MetricExpectation(ColumnAggregateExpectation, ABC):
    """An expectation of the metrics of the subject ``column``; Data Docs show its ``description``."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_METRIC,)

    @abstractmethod
    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        """Return whether the metrics meet the expectation, and a description of the observed values.

        :raises KeyError: if a metric is missing; the expectation then fails as not measured.
        """

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        try:
            success, observed = self._evaluate(metrics[_METRIC])
        except KeyError as missing:
            success, observed = False, f"not measured by this run ({missing.args[0]})"
        return {"success": success, "result": {"observed_value": observed}}


class CountExpectation(MetricExpectation, ABC):
    """Expects a count of exceptional rows to be zero."""

    metric: ClassVar[str]
    """Name of the metric that contains the count."""
    words: ClassVar[str]
    """Words after the count and its noun, such as ``with NULL in the key`` after ``3 rows``."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        count = metrics[self.metric]
        return count == 0, f"{format_count(count, 'row')} {self.words}"
