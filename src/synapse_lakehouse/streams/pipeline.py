"""Measure the streams on a run's branch: positions, safe bounds and gaps, in one immutable report.

The steps are: measure keys, count stream IDs, measure positions, find gaps, compare with replication. Gaps are appended
to ``audit.stream_gaps`` in batches during the search, because all gaps together may not fit in memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import releases, store
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.streams.checks.operator_acknowledgements import parse_acknowledged_ids
from synapse_lakehouse.streams.checks.position_regression import find_unacknowledged_regressions
from synapse_lakehouse.streams.count_stream_ids import StreamFactCounter
from synapse_lakehouse.streams.gaps.detect import GapDetector
from synapse_lakehouse.streams.gaps.record_gaps import add_recorded_ids, record_gaps
from synapse_lakehouse.streams.gaps.writers_of_gap import find_responsible_writers
from synapse_lakehouse.streams.positions.configured_writers import read_configured_writers
from synapse_lakehouse.streams.positions.measure_positions import PositionMeasurer
from synapse_lakehouse.streams.positions.safe_bound import find_accepted_rule
from synapse_lakehouse.streams.primary_key_counts import list_unchanged_tables, measure_table_facts
from synapse_lakehouse.streams.stream_tables import StreamTables

Row = Mapping[str, Any]
Rows = Sequence[Row]


class MeasureContext(Protocol):
    """The run that is measured, and the services that it uses."""

    @property
    def spark(self) -> SparkSession: ...  # noqa: D102
    @property
    def catalog(self) -> Catalog: ...  # noqa: D102
    @property
    def settings(self) -> Settings: ...  # noqa: D102
    @property
    def run(self) -> Run: ...  # noqa: D102
    def report_progress(self, line: str) -> None: ...  # noqa: D102


class ReplicationComparison(Protocol):
    """A run's comparison of received replication commands with bronze."""

    def announced(self) -> DataFrame:
        """Return announced rows that are not stored, with the columns ``ANNOUNCED_COLUMNS``."""

    def rows(self) -> Rows:
        """Return rows of ``audit.replication_coverage``. The run's gaps must be recorded before this call."""


CompareReplication = Callable[[Mapping[str, int]], ReplicationComparison | None]
"""Function that receives the safe bounds by stream, without sign; it returns None if no new command was received."""


@dataclass(frozen=True)
class StreamReport:
    """The measurements of one run's streams. Each field contains rows of the audit table with its name."""

    table_facts: Rows
    stream_facts: Rows
    stream_positions: Rows
    replication_coverage: Rows = ()

    def append(self, catalog: Catalog, run: Run) -> None:
        """Append the rows to their audit tables."""
        for name, rows in vars(self).items():
            if rows:
                store.append_audit_rows(catalog, f"audit.{name}", list(rows), run)


@dataclass(frozen=True)
class _AuditRows:
    """Rows by audit table: the rows that this run has written so far, and those of the previous release."""

    run: Mapping[str, list[dict[str, Any]]]
    previous: Mapping[str, list[dict[str, Any]]]

    @classmethod
    def read(cls, catalog: Catalog, run: Run, release: Release | None) -> "_AuditRows":
        own = ("snapshots", "ledger", "repairs", "stream_facts")
        previous = ("table_facts", "stream_facts", "stream_positions", "snapshots")
        rows = {
            name: store.read_release_rows(catalog, f"audit.{name}", release) if release else [] for name in previous
        }
        return cls(
            {name: store.read_run_rows(catalog, f"audit.{name}", run.run_id) for name in own},
            rows | {"ledger": store.read_release_ledger(catalog, release) if release else []},
        )

    @property
    def source(self) -> Row:
        """The row of ``audit.snapshots``: the state of the source."""
        (snapshot,) = self.run["snapshots"]
        return snapshot

    @property
    def snapshots(self) -> dict[str, int]:
        """Iceberg snapshot by copied table."""
        return {row["table_name"]: row["snapshot_id"] for row in self.run["ledger"]}

    @property
    def previous_facts(self) -> dict[str, Row]:
        """By table, the previous release's rows of ``audit.table_facts``."""
        return {row["table_name"]: row for row in self.previous["table_facts"]}

    @property
    def comparable_tables(self) -> frozenset[str]:
        """Tables that this run and the previous release read with the same statement."""
        statements = {row["table_name"]: row["statement"] for row in self.run["ledger"]}
        return frozenset(
            row["table_name"]
            for row in self.previous["ledger"]
            if row["statement"] is not None and row["statement"] == statements.get(row["table_name"])
        )

    @property
    def previous_row_writers(self) -> dict[str, set[str]]:
        """Writers of the previous release's rows, by stream."""
        writers: dict[str, set[str]] = {}
        for fact in self.previous["stream_facts"]:
            named = (writer for writer, rows in fact["rows_by_writer"] or () if rows)
            writers.setdefault(fact["stream"], set()).update(named)
        return writers

    @property
    def repaired_ranges(self) -> dict[str, list[str]]:
        """Key ranges that this run repaired, by table."""
        ranges: dict[str, list[str]] = {}
        for row in self.run["repairs"]:
            ranges.setdefault(row["table_name"], []).extend(row["ranges"])
        return ranges


def measure(context: MeasureContext, compare_replication: CompareReplication = lambda _: None) -> StreamReport:
    """Measure the streams on the run's branch, append their gaps, and return the rows of all other audit tables."""
    published = store.read_releases(context.catalog)
    previous = published[-1] if published else None
    audit = _AuditRows.read(context.catalog, context.run, previous)
    declared = catalogue.load_catalogue().restrict_to_lake(audit.source["absent_objects"] or ())
    tables = StreamTables(context.spark, declared, previous, audit.snapshots, context.catalog)

    table_facts = measure_table_facts(tables, audit.previous_facts)
    unchanged = list_unchanged_tables(tables, audit.previous_facts)
    context.report_progress(f"keys of {len(table_facts) - len(unchanged)} tables measured, the others are unchanged")

    measurer = _position_measurer(context.settings, tables, audit)
    counter = StreamFactCounter(
        tables=tables,
        run=context.run,
        writers=measurer.likely_writers,
        earlier=releases.select_interval_releases(published, context.run),
        previous_facts={(row["stream"], row["table_name"]): row for row in audit.previous["stream_facts"]},
    )
    facts = counter.count()
    positions = measurer.measure([*audit.run["stream_facts"], *facts])
    bounded = sum(row["safe_bound"] is not None for row in positions)
    context.report_progress(f"{len(positions)} streams measured, {bounded} with a safe bound")

    acknowledged = parse_acknowledged_ids(catalogue.load_catalogue(), context.settings.lakehouse_acknowledged_ids)
    if previous is None:
        acknowledged = add_recorded_ids(context.catalog, acknowledged)
    regressions = find_unacknowledged_regressions(declared, positions, audit.previous["stream_positions"], acknowledged)
    detector = _gap_detector(tables, audit, positions, facts, table_facts)
    comparison = compare_replication({name: window.bound for name, window in detector.windows.items()})
    gaps = detector.find_gaps(comparison.announced() if comparison else None)
    counts = record_gaps(context.catalog, context.run, gaps, acknowledged, detector.windows)
    context.report_progress(f"gaps examined: {counts}")

    find_writers = partial(find_responsible_writers, tables, measurer.likely_writers)
    return StreamReport(
        table_facts,
        [counts.correct_fact(fact) | {"reread_ids": detector.count_reread_ids(fact)} for fact in facts],
        [
            row | {"regressions": regressions[row["stream"]]} | counts.position_columns(row["stream"], find_writers)
            for row in positions
        ],
        comparison.rows() if comparison else (),
    )


def _position_measurer(settings: Settings, tables: StreamTables, audit: _AuditRows) -> PositionMeasurer:
    snapshot, previous = audit.source, audit.previous["stream_positions"]
    # Writers may be configured for streams that the source's release lacks.
    declared = catalogue.load_catalogue()
    return PositionMeasurer(
        tables=tables,
        writers=read_configured_writers(declared, settings.lakehouse_stream_writers, settings.synapse_config),
        uncopied=frozenset(name for name, _ in snapshot["drifted_tables"] or ()),
        sequences={row["name"]: (row["last_value"], row["is_called"]) for row in snapshot["sequences"]},
        previous_positions={row["stream"]: dict(row["writers"]) for row in previous},
        previously_vanished={row["stream"]: row["vanished_writers"] or () for row in previous},
        previous_rules={row["stream"]: find_accepted_rule(row) for row in previous},
        previous_row_writers=audit.previous_row_writers,
    )


def _gap_detector(
    tables: StreamTables, audit: _AuditRows, positions: Rows, facts: Rows, table_facts: Rows
) -> GapDetector:
    read_at = [int(row["taken_at"].timestamp() * 1000) for row in audit.previous["snapshots"]]
    return GapDetector(
        tables=tables,
        positions=positions,
        facts=facts,
        row_counts=_row_counts(table_facts),
        previous_row_counts=_row_counts(audit.previous["table_facts"]) if tables.previous else None,
        previous_read_at=max(read_at, default=None),
        repaired=audit.repaired_ranges,
        comparable=audit.comparable_tables,
    )


def _row_counts(table_facts: Iterable[Row]) -> dict[str, int]:
    return {row["table_name"]: row["rows"] for row in table_facts}
