"""Bronze tables with long streams that Spark generates and measures, as the DAG does."""

import runpy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.types import StringType, StructField

from bench import spark_runs
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Stream, Table
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.commits import ensure_branch
from synapse_lakehouse.spark_app import SparkApp

_SHARES: Final = {
    "events": 30, "backfill": 15, "device_lists": 15, "receipts": 10, "profile_updates": 5, "account_data": 5,
    "presence": 3, "push_rules": 3, "pushers": 2, "thread_subscriptions": 2, "sticky_events": 2,
}  # fmt: skip
"""Stream → its parts of all IDs. Other streams have one part."""

_WRITERS: Final = ("persister1", "persister2")
_ROLLED_BACK: Final = "pmod(n, 1000) = 7"
"""Condition of IDs without a row, because their transaction was rolled back."""


class StreamLake:
    """Add IDs to the streams, measure them in a new run, and publish it."""

    def __init__(self, settings: Settings) -> None:
        spark_runs.set_driver_memory(settings)
        self._settings, self._runs = settings, 0
        script = runpy.run_path(str(PROJECT_FOLDER / "spark_apps" / "measure_streams.py"))
        self._measure_streams: Callable[[SparkApp], None] = script["measure_streams"]
        self._catalogue = catalogue.load_catalogue()
        self._app = self._new_app()
        tables.ensure_tables(self._app.catalog, self._catalogue)
        self._pairs = self._catalogue.stream_table_pairs()
        self._ends = dict.fromkeys({stream.name for stream, _ in self._pairs}, 0)

    def add_ids(self, ids: int) -> int:
        """Begin a run with about ``ids`` new IDs in all streams, and return the number of rows of its tables."""
        self._app = self._new_app()
        shares = {name: _SHARES.get(name, 1) for name in self._ends}
        ranges = {name: (end, end + ids * shares[name] // sum(shares.values())) for name, end in self._ends.items()}
        self._ends = {name: last for name, (_, last) in ranges.items()}
        for stream, table in self._pairs:
            self._insert(stream, table, *ranges[stream.name])
        positions = ", ".join(
            f"('{stream.stream_positions}', '{writer}', {stream.direction * self._ends[stream.name]})"
            for stream in self._catalogue.streams
            if stream.name in self._ends
            for writer in _WRITERS
        )
        self._app.spark.sql(f"insert overwrite bronze.stream_positions values {positions}")  # noqa: S608
        return self._record_copy()

    def measure(self) -> None:
        """Run the task ``measure_streams``."""
        self._measure_streams(self._app)

    def count_ids_and_gaps(self) -> tuple[int, int]:
        """Return the numbers of IDs and of gaps that the last run measured."""
        facts = store.read_run_rows(self._app.catalog, "audit.stream_facts", self._app.run.run_id)
        positions = store.read_run_rows(self._app.catalog, "audit.stream_positions", self._app.run.run_id)
        gaps = sum(sum(dict(row["gaps"] or ()).values()) for row in positions)
        return sum(row["ids"] for row in facts), gaps

    def publish(self) -> None:
        """Publish the run with passed checks."""
        spark_runs.publish_run(self._app)

    def close(self) -> None:
        """Stop Spark."""
        self._app.spark.stop()

    def _insert(self, stream: Stream, table: Table, previous: int, last: int) -> None:
        stream_tables = [table_of_stream.name for owner, table_of_stream in self._pairs if owner.name == stream.name]
        if table.name == "ex_outlier_stream":
            # A de-outliered event has an ID that is in no other table.
            predicate = "pmod(n, 100) = 50"
        elif stream.name in ("events", "backfill"):
            # A state event has rows in events and in current_state_delta_stream.
            predicate = "pmod(n, 100) <> 50" if table.name == "events" else "pmod(n, 4) = 0"
        else:
            predicate = f"pmod(n, {len(stream_tables)}) = {stream_tables.index(table.name)}"
        ensure_branch(self._app.spark, f"bronze.{table.name}", self._app.run.branch)
        columns = ", ".join(
            f"cast({self._value(stream, table, field)} as {field.dataType.simpleString()}) as {field.name}"
            for field in self._app.spark.table(f"bronze.{table.name}").schema
        )
        self._app.spark.sql(
            f"insert into bronze.{table.name} select {columns}"  # noqa: S608
            f" from (select id as n from range({previous + 1}, {last + 1})) where not {_ROLLED_BACK} and {predicate}"
        )

    def _value(self, stream: Stream, table: Table, field: StructField) -> str:
        if field.name == table.streams[stream.name]:
            return f"{stream.direction} * n"
        if field.name == table.writer_column:
            return f"element_at(array{_WRITERS}, cast(1 + pmod(n, 2) as int))"
        if field.name == "received_ts":
            return "1767225600000 + n"
        if field.name in table.primary_key:
            # Same length as an event ID.
            return (
                f"'{stream.name[:1]}' || md5(string(n)) || '0123456789'"
                if isinstance(field.dataType, StringType)
                else "n"
            )
        return "null"

    def _record_copy(self) -> int:
        """Write the audit rows of a copy, and return the number of rows of the run's tables."""
        now, run = datetime.now(UTC), self._app.run
        sequences = {stream.sequence: self._ends.get(stream.name, 1) for stream in self._catalogue.streams}
        sequence_rows = [{"name": name, "last_value": last, "is_called": True} for name, last in sequences.items()]
        snapshot_row = {
            "branch": run.branch,
            "taken_at": now,
            "began_at": now,
            "sequences": sequence_rows,
            "drifted_tables": {},
            "unknown_objects": [],
        }
        store.append_audit_rows(self._app.catalog, "audit.snapshots", [snapshot_row], run)
        rows, ledger, stream_tables = 0, [], {table.name for _, table in self._pairs}
        for name in stream_tables | {"stream_positions"}:
            table = load_iceberg_table(self._app.spark, f"bronze.{name}")
            table_snapshot = table.snapshot(run.branch)
            rows += int(table_snapshot.summary()["total-records"]) if name in stream_tables else 0
            ledger_row = {"table_name": name, "snapshot_id": int(table_snapshot.snapshotId()), "statement": "bench"}
            ledger.append(ledger_row | {"branch": run.branch, "written_at": now})
        store.append_audit_rows(self._app.catalog, "audit.ledger", ledger, run)
        return rows

    def _new_app(self) -> SparkApp:
        self._runs += 1
        return spark_runs.new_app(self._settings, self._runs)
