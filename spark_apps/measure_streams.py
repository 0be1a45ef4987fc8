"""Measure the run's branch of bronze: keys of every table, ids, positions, safe bounds and gaps of every stream."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import releases, store
from synapse_lakehouse.iceberg.read import duckdb_spill
from synapse_lakehouse.replication.coverage.job import covering, said
from synapse_lakehouse.spark_app import SparkApp, run_spark_app
from synapse_lakehouse.streams.checks import acknowledged
from synapse_lakehouse.streams.checks.position_regression import record_regressions
from synapse_lakehouse.streams.gaps import log
from synapse_lakehouse.streams.gaps.detect import GapDetector
from synapse_lakehouse.streams.gaps.responsible_writers import find_responsible_writers
from synapse_lakehouse.streams.positions.measure import PositionMeasurer
from synapse_lakehouse.streams.positions.writers import read_configured_writers
from synapse_lakehouse.streams.stream_facts import StreamFactCounter
from synapse_lakehouse.streams.stream_tables import StreamTables


def measure_streams(app: SparkApp) -> None:
    """Write ``audit.table_facts``, ``stream_facts``, ``stream_positions`` and ``stream_gaps`` of the run.

    And ``replication_coverage``, where a tap heard something since the run before.
    """
    declared = catalogue.load_catalogue()
    published = store.read_releases(app.catalog)
    accepted = published[-1] if published else None
    (snapshot,) = store.read_run_rows(app.catalog, "audit.snapshots", app.run.run_id)
    ledger, repairs = (
        store.read_run_rows(app.catalog, f"audit.{name}", app.run.run_id) for name in ("ledger", "repairs")
    )
    snapshots = {row["table_name"]: row["snapshot_id"] for row in ledger}
    mended: dict[str, list[str]] = {}
    for row in repairs:
        mended.setdefault(row["table_name"], []).extend(row["ranges"])
    statements = {row["table_name"]: row["statement"] for row in ledger}
    ledger_before = store.read_release_ledger(app.catalog, accepted) if accepted else []
    tables_before, facts_before, positions_before, then = (
        store.read_release_rows(app.catalog, f"audit.{name}", accepted) if accepted else []
        for name in ("table_facts", "stream_facts", "stream_positions", "snapshots")
    )
    held = StreamTables(app.spark, declared, accepted, snapshots, app.catalog)
    measuring = PositionMeasurer(
        held=held,
        writers=read_configured_writers(declared, app.settings.lakehouse_stream_writers, app.settings.synapse_config),
        kept=frozenset(name for name, _ in snapshot["drifted"] or ()),
        sequences={one["name"]: (one["last_value"], one["is_called"]) for one in snapshot["sequences"]},
        measured={
            name: row for row in tables_before if row["snapshot_id"] == snapshots.get(name := row["table_name"], -1)
        },
        positions_before={row["stream"]: dict(row["writers"]) for row in positions_before},
        vanished_before={row["stream"]: row["vanished_writers"] or () for row in positions_before},
    )
    table_facts = measuring.table_facts()
    store.append_audit_rows(app.catalog, "audit.table_facts", table_facts, app.run)
    app.report_progress(
        f"keys of {len(table_facts) - len(measuring.measured)} tables measured, the others are unchanged"
    )
    counting = StreamFactCounter(
        held=held,
        run=app.run,
        writers=measuring.likely_writers,
        earlier=releases.select_interval_releases(published, app.run),
        facts_before={(row["stream"], row["table_name"]): row for row in facts_before},
    )
    facts = counting.stream_facts()
    positions = measuring.stream_positions(
        [*store.read_run_rows(app.catalog, "audit.stream_facts", app.run.run_id), *facts]
    )
    known = acknowledged.parse_acknowledged_ids(declared, app.settings.lakehouse_acknowledged_ids)
    record_regressions(declared, positions, positions_before, known)
    bounded = sum(row["safe_bound"] is not None for row in positions)
    app.report_progress(f"{len(positions)} streams measured, {bounded} with a safe bound")
    examining = GapDetector(
        held=held,
        positions=positions,
        facts=facts,
        rows=_rows(table_facts),
        rows_before=_rows(tables_before) if accepted else None,
        since=max((int(one["taken_at"].timestamp() * 1000) for one in then), default=None),
        mended=mended,
        read_alike=frozenset(
            row["table_name"]
            for row in ledger_before
            if row["statement"] is not None and row["statement"] == statements.get(row["table_name"])
        ),
    )
    bounds = {name: window.bound for name, window in examining.windows.items()}
    covered = covering(app.catalog, app.run, declared, bounds, duckdb_spill.create_spill_folder(app.settings))
    found = examining.find_gaps(covered.announced() if covered else ())
    tally = log.record_gaps(app.catalog, app.run, found, known, examining.windows)
    tally.correct(positions, facts, partial(find_responsible_writers, held, measuring.likely_writers))
    examining.record_reread_ids(facts)
    store.append_audit_rows(app.catalog, "audit.stream_facts", facts, app.run)
    store.append_audit_rows(app.catalog, "audit.stream_positions", positions, app.run)
    app.report_progress(f"gaps examined: {tally}")
    if covered:
        coverage = covered.rows()
        store.append_audit_rows(app.catalog, "audit.replication_coverage", coverage, app.run)
        app.report_progress(f"replication compared: {said(coverage)}")


def _rows(table_facts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {row["table_name"]: row["rows"] for row in table_facts}


if __name__ == "__main__":
    run_spark_app(__doc__, measure_streams)
