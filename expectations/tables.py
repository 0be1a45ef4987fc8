"""What is expected of a table."""

from collections.abc import Sequence
from typing import ClassVar

from expectations.metric_expectation import FAIL, CountExpectation, MetricExpectation, Metrics, format_count


class ExpectTableInLedger(MetricExpectation):
    """The run says what it did with the table: its absence means that it was forgotten."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        if "rows_source" not in measures:
            return False, "no row in audit.ledger for this run"
        return True, f"{format_count(measures['rows_source'], 'row')} in the source"


class ExpectTableCopied(MetricExpectation):
    """The table could be copied. Where it could not, and the run may go on without it, it holds what it held before."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        return False, f"left as it was: {measures['drifted']}"


class ExpectKnownSchema(MetricExpectation):
    """The source has no table or column that the catalogue, and the list of what it leaves out, have never heard of."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        new = measures["novelties"]
        return not new, f"not copied: {', '.join(new)}" if new else "nothing new"


class ExpectRowsReadToBeWritten(MetricExpectation):
    """Nothing is lost between the source's connection and the branch."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        read, written = measures["rows_read"], measures["rows_written"]
        return read == written, f"{read:,} read, {written:,} written"


class ExpectContentReadToBeWritten(MetricExpectation):
    """What lies in the lake's files is, row by row, what the source sent."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        read, written = measures["hash_read"], measures["hash_written"]
        return read == written, f"content hash {read} read, {written} written"


class ExpectRowsOfSource(MetricExpectation):
    """The table on the branch has as many rows as the source counted in the same snapshot."""

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        here, source = measures["rows"], measures["rows_source"]
        return here == source, f"{format_count(here, 'row')}, {source:,} in the source"


class ExpectRowsOfTable(MetricExpectation):
    """The table has as many rows as the table that it derives from."""

    origin: str

    def _judge(self, measures: Metrics) -> tuple[bool, str]:
        here, there = measures["rows"], measures["rows_origin"]
        return here == there, f"{format_count(here, 'row')}, {there:,} in {self.origin}"


class ExpectNoNullKey(CountExpectation):
    """No column of the table's key is NULL."""

    counts: ClassVar[str] = "null_keys"
    words: ClassVar[str] = "with NULL in the key"


class ExpectUniqueKey(CountExpectation):
    """No key occurs a second time."""

    counts: ClassVar[str] = "duplicate_keys"
    words: ClassVar[str] = "repeating a key"


def expect_valid_key(
    subject: str, key: Sequence[str], nullable: Sequence[str] = (), *, repeats: bool = False
) -> list[MetricExpectation]:
    """What is expected of a table's key: its ``nullable`` columns may be NULL; with ``repeats`` rows may share it."""
    required = [name for name in key if name not in nullable]
    each = key[0] if len(key) == 1 else f"({', '.join(key)})"
    complete = ExpectNoNullKey(column=subject, severity=FAIL, description=f"no NULL in {', '.join(required)}")
    if repeats:
        return [complete]
    return [complete, ExpectUniqueKey(column=subject, severity=FAIL, description=f"every {each} occurs once")]
