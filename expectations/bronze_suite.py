"""The suite of bronze, derived from the catalogue, and the metrics that it evaluates."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from expectations.metric_expectation import FAIL, WARN, MetricExpectation, Metrics
from expectations.stream_expectations import (
    ExpectConfiguredWriters,
    ExpectGapsWithinBudget,
    ExpectIdInOneTable,
    ExpectNoLateId,
    ExpectNoLostId,
    ExpectNoNullStreamId,
    ExpectNoPositionRegression,
    ExpectNoProvisionalBound,
    ExpectNoVanishedWriter,
    ExpectSequenceNotBehind,
    ExpectUnchangedRows,
    ExpectUniqueStreamId,
)
from expectations.table_expectations import (
    ExpectContentReadToBeWritten,
    ExpectKnownSchema,
    ExpectRowsOfSource,
    ExpectRowsReadToBeWritten,
    ExpectTableCopied,
    ExpectTableInLedger,
    expect_valid_key,
)
from synapse_lakehouse.catalogue import Catalogue, Contiguity, LoadMode, Stream, Table, effective_contiguity
from synapse_lakehouse.streams.positions.safe_bound import BoundRule

Row = Mapping[str, Any]

_SCHEMA = "schema of the source"
_WRITERS = "writers of the streams"
_LEDGER_METRICS = ("rows_source", "rows_read", "rows_written", "hash_read", "hash_written")
_TABLE_METRICS = ("rows", "null_keys", "duplicate_keys")
_STREAM_METRICS = (
    *("rule", "safe_bound", "previous_bound", "gaps", "shared_ids", "faults"),
    *("missing_writers", "unknown_writers", "vanished_writers"),
    *("sequence_last_value", "sequence_is_called", "largest_id", "closed_ids", "rowless_ids", "regressions"),
)
_BACKING_METRICS = ("null_ids", "duplicate_ids", "late_ids", "reread_ids")


def build_suite(
    catalogue: Catalogue, drifted: Collection[str] = (), gap_budget: int | None = None
) -> list[MetricExpectation]:
    """Build expectations of the source's schema, of every copied table and of every stream in the catalogue.

    :param drifted: tables that the run could not copy because of schema drift.
    :param gap_budget: percent; it replaces the gap budgets of the streams in the catalogue.
    """
    uncopied = [table for table in catalogue.tables if table.name in drifted]
    measured = catalogue.without_tables({table.name for table in uncopied if table.load is LoadMode.MEASURE})
    return [
        ExpectKnownSchema(
            column=_SCHEMA, severity=WARN, description="its version, and every table and column, are known"
        ),
        ExpectNoProvisionalBound(
            column=_WRITERS, severity=WARN, description="the configuration names the writers of all streams"
        ),
        *chain.from_iterable(_expect_uncopied_table(table) for table in uncopied),
        *chain.from_iterable(_expect_table(table) for table in catalogue.copied_tables() if table not in uncopied),
        *chain.from_iterable(
            _expect_stream(stream, measured.backing_tables(stream.name), gap_budget) for stream in catalogue.streams
        ),
    ]


def collect_metrics(
    catalogue: Catalogue,
    snapshots: Iterable[Row],
    ledger: Iterable[Row],
    table_facts: Iterable[Row],
    stream_positions: Iterable[Row],
    stream_facts: Iterable[Row],
) -> dict[str, Metrics]:
    """Collect metrics by subject from one run's rows of the audit tables that the parameters name.

    Metrics that were not measured are absent.
    """
    metrics: dict[str, dict[str, Any]] = {_subject(table): {} for table in catalogue.copied_tables()}
    metrics |= {_subject(stream): {} for stream in catalogue.streams} | {_SCHEMA: {}}
    for row in snapshots:
        later = catalogue.explain_later_version(row["schema_version"])
        metrics[_SCHEMA] = {"unknown_objects": row["unknown_objects"] or [], "later_version": later or ""}
        for name, reason in row["drifted_tables"] or ():
            metrics.setdefault(f"bronze.{name}", {})["drifted"] = reason
    for row in ledger:
        metrics.setdefault(f"bronze.{row['table_name']}", {}).update(_select(row, _LEDGER_METRICS))
    for row in table_facts:
        metrics.setdefault(f"bronze.{row['table_name']}", {}).update(_select(row, _TABLE_METRICS))
    stream_positions = list(stream_positions)
    metrics[_WRITERS] = _collect_learned_writers(stream_positions)
    for row in stream_positions:
        positions = [position for _, position in row["writers"] or []]
        metrics.setdefault(f"stream {row['stream']}", {}).update(
            _select(row, _STREAM_METRICS) | {"positions": positions}
        )
    for row in stream_facts:
        facts = {f"{row['table_name']}.{name}": value for name, value in _select(row, _BACKING_METRICS).items()}
        metrics.setdefault(f"stream {row['stream']}", {}).update(facts)
    return {**metrics}


def _collect_learned_writers(stream_positions: Iterable[Row]) -> dict[str, Any]:
    """Return the metrics that depend on learned writers, of all streams, for :class:`ExpectNoProvisionalBound`."""
    rows = sorted(stream_positions, key=lambda row: row["stream"])
    counts = Counter[str]()
    for row in rows:
        counts.update(dict(row["provisional_gaps"] or ()))
    missing = {
        row["stream"]: sorted(row["missing_writers"] or ())
        for row in rows
        if row["rule"] == BoundRule.MISSING_LEARNED_WRITER
    }
    return {
        "provisional_streams": {
            row["stream"]: _list_writers_below(row) for row in rows if row["rule"] == BoundRule.PROVISIONAL
        },
        "missing_learned_writers": missing,
        "provisional_gaps": counts,
        "faults": [fault for row in rows for fault in row["faults"] or ()],
    }


def _list_writers_below(row: Row) -> list[str]:
    """Return the writers of the row's stream whose position is nearer to zero than the stream's safe bound."""
    return sorted(name for name, position in row["writers"] or () if abs(position) < abs(row["safe_bound"] or 0))


def _expect_table(table: Table) -> list[MetricExpectation]:
    subject = _subject(table)
    return [
        ExpectTableInLedger(column=subject, severity=FAIL, description="the run's ledger contains the table"),
        ExpectRowsReadToBeWritten(column=subject, severity=FAIL, description="as many rows were written as read"),
        ExpectContentReadToBeWritten(
            column=subject, severity=FAIL, description="the written content equals the content read"
        ),
        ExpectRowsOfSource(
            column=subject,
            severity=FAIL,
            description="it has as many rows as the source in the same PostgreSQL snapshot",
        ),
        *expect_valid_key(subject, table.primary_key, table.nullable_key, repeats=table.repeats_keys),
    ]


def _expect_uncopied_table(table: Table) -> list[MetricExpectation]:
    subject = _subject(table)
    copied = ExpectTableCopied(
        column=subject, severity=WARN, description="the source's schema allows the copy of the table"
    )
    if table.load is LoadMode.MEASURE:
        return [copied]
    return [copied, *expect_valid_key(subject, table.primary_key, table.nullable_key, repeats=table.repeats_keys)]


def _expect_stream(
    stream: Stream, backing: Sequence[tuple[Table, str]], gap_budget: int | None
) -> list[MetricExpectation]:
    subject = _subject(stream)
    expected = [*chain.from_iterable(_expect_ids(stream, table, column) for table, column in backing)]
    if stream.stream_positions:
        expected += _expect_rows(stream, [table for table, _ in backing if table.load is not LoadMode.MEASURE])
        direction = "increases" if stream.sign == "negative" else "decreases"
        expected += [
            ExpectNoPositionRegression(
                column=subject, severity=FAIL, description=f"neither the safe bound nor a position {direction}"
            ),
            ExpectSequenceNotBehind(
                column=subject, severity=WARN, description=f"{stream.sequence} is not behind positions and ids"
            ),
            ExpectNoVanishedWriter(column=subject, severity=WARN, description="no configured writer lost its position"),
        ]
    if stream.gap_budget and (percent := gap_budget or stream.gap_budget):
        description = f"at most {percent} % of the newly closed IDs have no row"
        expected.append(ExpectGapsWithinBudget(column=subject, percent=percent, severity=WARN, description=description))
    description = "its writers agree with the configuration" if stream.stream_positions else "it was measured"
    return [*expected, ExpectConfiguredWriters(column=subject, severity=WARN, description=description)]


def _expect_rows(stream: Stream, copied: Sequence[Table]) -> list[MetricExpectation]:
    """Return expectations of a stream's rows in all of its copied tables."""
    subject = _subject(stream)
    expected: list[MetricExpectation] = []
    if any(effective_contiguity(stream, table) in (Contiguity.APPEND_ONLY, Contiguity.UPSERT) for table in copied):
        expected.append(
            ExpectNoLostId(column=subject, severity=FAIL, description="no row is gone without an explanation")
        )
    if append_only := [table.name for table in copied if effective_contiguity(stream, table) is Contiguity.APPEND_ONLY]:
        side = "above" if stream.sign == "negative" else "below"
        expected.append(
            ExpectUnchangedRows(
                column=subject,
                tables=append_only,
                severity=FAIL,
                description=f"rows at or {side} the previous bound are unchanged",
            )
        )
    if stream.unique_ids and sum(not table.repeats_ids for table in copied) > 1:
        expected.append(
            ExpectIdInOneTable(column=subject, severity=FAIL, description="every ID is in one of its tables")
        )
    return expected


def _expect_ids(stream: Stream, table: Table, column: str) -> list[MetricExpectation]:
    """Return expectations of the IDs in one backing table. If the table is only counted, expect only non-NULL IDs."""
    subject, ids = _subject(stream), f"{table.name}.{column}"
    is_copied = table.load is not LoadMode.MEASURE
    expected: list[MetricExpectation] = [
        ExpectNoNullStreamId(column=subject, table=table.name, severity=FAIL, description=f"no NULL in {ids}")
    ]
    if is_copied and stream.unique_ids and not table.repeats_ids:
        expected.append(
            ExpectUniqueStreamId(
                column=subject, table=table.name, severity=FAIL, description=f"every {ids} occurs once"
            )
        )
    if is_copied and stream.immutable_below_bound:
        side = "above" if stream.sign == "negative" else "below"
        expected.append(
            ExpectNoLateId(
                column=subject,
                table=table.name,
                severity=FAIL,
                description=f"no new {ids} at or {side} the previous bound",
            )
        )
    return expected


def _subject(declared: Table | Stream) -> str:
    return f"bronze.{declared.name}" if isinstance(declared, Table) else f"stream {declared.name}"


def _select(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names if row[name] is not None}
