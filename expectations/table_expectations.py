"""Expectations of a table: its ledger row, its row counts and its key."""

from collections.abc import Sequence
from typing import ClassVar

from expectations.metric_expectation import FAIL, CountExpectation, MetricExpectation, Metrics, format_count


class ExpectTableInLedger(MetricExpectation):
    """The run's ledger contains the table; otherwise the run skipped it."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        if "rows_source" not in metrics:
            return False, "no row in audit.ledger for this run"
        return True, f"{format_count(metrics['rows_source'], 'row')} in the source"


class ExpectTableCopied(MetricExpectation):
    """The source's schema allows the copy of the table; otherwise the table has the previous release's content."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        drift = metrics.get("drifted")
        return drift is None, "copied" if drift is None else f"not copied: {drift}"


class ExpectKnownSchema(MetricExpectation):
    """The schema version is known, and each table and column is in the catalogue or in the list of excluded columns."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        later, new = metrics["later_version"], metrics["unknown_objects"]
        messages = [later] if later else []
        messages += [f"Not copied, because the catalogue does not list them: {', '.join(new)}."] if new else []
        return not messages, " ".join(messages) or "no new table or column"


class ExpectRowsReadToBeWritten(MetricExpectation):
    """The run wrote as many rows to its branch as it read from the source."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        read, written = metrics["rows_read"], metrics["rows_written"]
        return read == written, f"{read:,} read, {written:,} written"


class ExpectContentReadToBeWritten(MetricExpectation):
    """The written data files have the same content hash as the rows that were read from the source."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        read, written = metrics["hash_read"], metrics["hash_written"]
        return read == written, f"content hash {read} read, {written} written"


class ExpectRowsOfSource(MetricExpectation):
    """The table on the branch has as many rows as the source in the same PostgreSQL snapshot."""

    def _evaluate(self, metrics: Metrics) -> tuple[bool, str]:
        rows, source_rows = metrics["rows"], metrics["rows_source"]
        return rows == source_rows, f"{format_count(rows, 'row')}, {source_rows:,} in the source"


class ExpectNoNullKey(CountExpectation):
    """No required column of the table's key is NULL."""

    metric: ClassVar[str] = "null_keys"
    words: ClassVar[str] = "with NULL in the key"


class ExpectUniqueKey(CountExpectation):
    """No key occurs twice."""

    metric: ClassVar[str] = "duplicate_keys"
    words: ClassVar[str] = "with a repeated key"


def expect_valid_key(
    subject: str, key: Sequence[str], nullable: Sequence[str] = (), *, repeats: bool = False
) -> list[MetricExpectation]:
    """Build expectations of a table's key: ``nullable`` columns may be NULL; with ``repeats``, rows may share a key."""
    required = [name for name in key if name not in nullable]
    columns = key[0] if len(key) == 1 else f"({', '.join(key)})"
    not_null = ExpectNoNullKey(column=subject, severity=FAIL, description=f"no NULL in {', '.join(required)}")
    if repeats:
        return [not_null]
    return [not_null, ExpectUniqueKey(column=subject, severity=FAIL, description=f"every {columns} occurs once")]
