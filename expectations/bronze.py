"""The suite of bronze, derived from the catalogue, and the measures that it judges."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from expectations.metric_expectation import FAIL, WARN, MetricExpectation, Metrics
from expectations.streams import (
    ExpectConfiguredWriters,
    ExpectGapsWithinBudget,
    ExpectIdInOneTable,
    ExpectNoLateId,
    ExpectNoLostId,
    ExpectNoNullStreamId,
    ExpectNoPositionRegression,
    ExpectNoVanishedWriter,
    ExpectSequenceNotBehind,
    ExpectUnchangedRows,
    ExpectUniqueStreamId,
)
from expectations.tables import (
    ExpectContentReadToBeWritten,
    ExpectKnownSchema,
    ExpectRowsOfSource,
    ExpectRowsReadToBeWritten,
    ExpectTableCopied,
    ExpectTableInLedger,
    expect_valid_key,
)
from synapse_lakehouse.catalogue import Catalogue, Contiguity, LoadMode, Stream, Table, effective_contiguity

Row = Mapping[str, Any]

_SCHEMA = "schema of the source"
_LEDGER = ("rows_source", "rows_read", "rows_written", "hash_read", "hash_written")
_TABLE = ("rows", "null_keys", "duplicate_keys")
_STREAM = (
    *("rule", "safe_bound", "previous_bound", "gaps", "shared_ids", "faults"),
    *("missing_writers", "unknown_writers", "vanished_writers"),
    *("sequence_last_value", "sequence_is_called", "largest_id", "closed_ids", "rowless_ids", "went_back"),
)
_BACKING = ("null_ids", "duplicate_ids", "late_ids", "reread_ids")


def build_suite(
    catalogue: Catalogue, drifted: Collection[str] = (), gap_budget: int | None = None
) -> list[MetricExpectation]:
    """What is expected of the source's schema, of every copied table and of every stream of the catalogue.

    :param drifted: tables that the run could not copy and goes on without.
    :param gap_budget: percent, instead of that of each stream that has one.
    """
    kept = [table for table in catalogue.tables if table.name in drifted]
    fitting = catalogue.without_tables({table.name for table in kept if table.load is LoadMode.MEASURE})
    return [
        ExpectKnownSchema(
            column=_SCHEMA, severity=WARN, description="the catalogue knows all of its tables and columns"
        ),
        *(one for table in kept for one in _of_kept(table)),
        *(one for table in catalogue.copied_tables() if table not in kept for one in _of_table(table)),
        *(
            one
            for stream in catalogue.streams
            for one in _of_stream(stream, fitting.backing_tables(stream.name), gap_budget)
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
    """Measures by subject, out of one run's rows of the audit tables; what the run left out is absent."""
    found: dict[str, dict[str, Any]] = {_subject(table): {} for table in catalogue.copied_tables()}
    found |= {_subject(stream): {} for stream in catalogue.streams} | {_SCHEMA: {}}
    for row in snapshots:
        found[_SCHEMA] = {"novelties": row["novelties"] or []}
        for name, reason in row["drifted"] or ():
            found.setdefault(f"bronze.{name}", {})["drifted"] = reason
    for row in ledger:
        found.setdefault(f"bronze.{row['table_name']}", {}).update(_measured(row, _LEDGER))
    for row in table_facts:
        found.setdefault(f"bronze.{row['table_name']}", {}).update(_measured(row, _TABLE))
    for row in stream_positions:
        positions = [position for _, position in row["writers"] or []]
        found.setdefault(f"stream {row['stream']}", {}).update(_measured(row, _STREAM) | {"positions": positions})
    for row in stream_facts:
        facts = {f"{row['table_name']}.{name}": value for name, value in _measured(row, _BACKING).items()}
        found.setdefault(f"stream {row['stream']}", {}).update(facts)
    return {**found}


def _of_table(table: Table) -> list[MetricExpectation]:
    subject = _subject(table)
    return [
        ExpectTableInLedger(column=subject, severity=FAIL, description="the run's ledger has the table"),
        ExpectRowsReadToBeWritten(column=subject, severity=FAIL, description="every row that was read was written"),
        ExpectContentReadToBeWritten(
            column=subject, severity=FAIL, description="its new files hold what was read, by content"
        ),
        ExpectRowsOfSource(
            column=subject, severity=FAIL, description="it has as many rows as the source in the same snapshot"
        ),
        *expect_valid_key(subject, table.primary_key, table.nullable_key, repeats=table.repeats_keys),
    ]


def _of_kept(table: Table) -> list[MetricExpectation]:
    subject = _subject(table)
    copied = ExpectTableCopied(column=subject, severity=WARN, description="the source's schema lets it be copied")
    if table.load is LoadMode.MEASURE:
        return [copied]
    return [copied, *expect_valid_key(subject, table.primary_key, table.nullable_key, repeats=table.repeats_keys)]


def _of_stream(stream: Stream, backing: Sequence[tuple[Table, str]], gap_budget: int | None) -> list[MetricExpectation]:
    subject = _subject(stream)
    expected = [one for table, column in backing for one in _of_ids(stream, table, column)]
    if stream.stream_positions:
        expected += _of_rows(stream, [table for table, _ in backing if table.load is not LoadMode.MEASURE])
        direction = "rises" if stream.sign == "negative" else "falls"
        expected += [
            ExpectNoPositionRegression(
                column=subject, severity=FAIL, description=f"neither the safe bound nor a position ever {direction}"
            ),
            ExpectSequenceNotBehind(
                column=subject, severity=WARN, description=f"{stream.sequence} is not behind positions and ids"
            ),
            ExpectNoVanishedWriter(column=subject, severity=WARN, description="no writer lost its position"),
        ]
    if stream.gap_budget and (percent := gap_budget or stream.gap_budget):
        description = f"no more than {percent} % of the newly closed ids are without a row"
        expected.append(ExpectGapsWithinBudget(column=subject, percent=percent, severity=WARN, description=description))
    description = "its writers are those that are configured" if stream.stream_positions else "it was measured"
    return [*expected, ExpectConfiguredWriters(column=subject, severity=WARN, description=description)]


def _of_rows(stream: Stream, copied: Sequence[Table]) -> list[MetricExpectation]:
    """What is expected of the rows of a stream, all its copied tables taken together."""
    subject = _subject(stream)
    expected: list[MetricExpectation] = []
    if any(effective_contiguity(stream, table) in (Contiguity.APPEND_ONLY, Contiguity.UPSERT) for table in copied):
        expected.append(
            ExpectNoLostId(column=subject, severity=FAIL, description="no row is gone that nothing explains")
        )
    if facts := [table.name for table in copied if effective_contiguity(stream, table) is Contiguity.APPEND_ONLY]:
        side = "above" if stream.sign == "negative" else "below"
        expected.append(
            ExpectUnchangedRows(
                column=subject,
                tables=facts,
                severity=FAIL,
                description=f"rows at or {side} the bound accepted before stay as they were",
            )
        )
    if stream.unique_ids and sum(not table.repeats_ids for table in copied) > 1:
        expected.append(
            ExpectIdInOneTable(column=subject, severity=FAIL, description="every id is in one of its tables")
        )
    return expected


def _of_ids(stream: Stream, table: Table, column: str) -> list[MetricExpectation]:
    """What is expected of the ids in one backing table; of a table that is only counted, just that there is one."""
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
                description=f"no new {ids} at or {side} the bound accepted before",
            )
        )
    return expected


def _subject(declared: Table | Stream) -> str:
    return f"bronze.{declared.name}" if isinstance(declared, Table) else f"stream {declared.name}"


def _measured(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names if row[name] is not None}
