"""How Great Expectations sees measures: a frame with one column per subject and one row per measure.

A subject is what is judged: a table (``bronze.events``) or a stream (``stream events``). So a suite's page in Data Docs
has one section per subject.
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
"""Measures of one subject by name. What was not measured is absent."""

FAIL, WARN = FailureSeverity.CRITICAL, FailureSeverity.WARNING
"""A failed expectation blocks publishing, or is only reported."""

_METRIC = "column.measures"


def build_metrics_frame(subjects: Mapping[str, Metrics]) -> pd.DataFrame:
    """One column per subject, one row per measure, None where a subject has no such measure."""
    names = sorted({name for measures in subjects.values() for name in measures})
    columns = {subject: [measures.get(name) for name in names] for subject, measures in subjects.items()}
    return pd.DataFrame(columns, index=names, dtype=object)


def format_count(number: int, noun: str) -> str:
    """As in ``1 row`` or ``1,250 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class SubjectMetrics(ColumnAggregateMetricProvider):
    """The measures of the subject that a column stands for."""

    metric_name = _METRIC

    @column_aggregate_value(engine=PandasExecutionEngine)
    def _pandas(cls, column: "pd.Series[Any]", **_: object) -> dict[str, Any]:
        return {str(name): value for name, value in column.items() if value is not None}


class MetricExpectation(ColumnAggregateExpectation, ABC):
    """An expectation of the measures of the subject ``column``; its ``description`` is what Data Docs show."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_METRIC,)

    @abstractmethod
    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        """Whether the measures are as expected, and what they are, in words.

        :raises KeyError: when a measure that it takes is missing; the expectation then fails as not measured.
        """

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        try:
            success, observed = self._judge(metrics[_METRIC])
        except KeyError as missing:
            success, observed = False, f"not measured by this run ({missing.args[0]})"
        return {"success": success, "result": {"observed_value": observed}}


class CountExpectation(MetricExpectation, ABC):
    """Expects a count of rows that are an exception to be zero."""

    counts: ClassVar[str]
    """Name of the measure."""
    words: ClassVar[str]
    """What is the matter with them, as in "3 rows ..."."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        found = measures[self.counts]
        return found == 0, f"{format_count(found, 'row')} {self.words}"
