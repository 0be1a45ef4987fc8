"""Long streams: bronze of a homeserver that has run for years, made by Spark, and measured as the main job does it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.types import StringType, StructField

from bench import apps
from measure_streams import measure_streams
from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Stream, Table
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.spark_app import SparkApp

Ids = tuple[int, int]
"""The last id before some, without its sign, and the last one of them."""

_SHARES: Final = {
    "events": 30, "backfill": 15, "device_lists": 15, "receipts": 10, "profile_updates": 5, "account_data": 5,
    "presence": 3, "push_rules": 3, "pushers": 2, "thread_subscriptions": 2, "sticky_events": 2,
}  # fmt: skip
"""How many parts of all ids a stream has; others have one."""

_WRITERS: Final = ("persister1", "persister2")
_ROLLED_BACK: Final = "pmod(n, 1000) = 7"
"""Ids that no row has, as their transactions failed."""


class Streaming:
    """Adds ids to the streams, measures them in a run of its own, and publishes it."""

    def __init__(self, settings: Settings) -> None:
        apps.give_memory(settings)
        self._settings, self._runs = settings, 0
        self._catalogue = catalogue.load_catalogue()
        self._app = self._new_app()
        tables.ensure_tables(self._app.catalog, self._catalogue)
        self._pairs = self._catalogue.stream_table_pairs()
        self._ends = dict.fromkeys({stream.name for stream, _ in self._pairs}, 0)

    def fill(self, ids: int) -> int:
        """Let a new run find about so many new ids, of all streams; how many rows they have."""
        self._app = self._new_app()
        shares = {name: _SHARES.get(name, 1) for name in self._ends}
        new = {name: (end, end + ids * shares[name] // sum(shares.values())) for name, end in self._ends.items()}
        self._ends = {name: last for name, (_, last) in new.items()}
        for stream, table in self._pairs:
            self._insert(stream, table, new[stream.name])
        positions = ", ".join(
            f"('{stream.stream_positions}', '{writer}', {stream.direction * self._ends[stream.name]})"
            for stream in self._catalogue.streams
            if stream.name in self._ends
            for writer in _WRITERS
        )
        self._app.spark.sql(f"insert overwrite bronze.stream_positions values {positions}")  # noqa: S608
        return self._recorded()

    def measure(self) -> None:
        """What the task ``measure_streams`` does."""
        measure_streams(self._app)

    def found(self) -> Mapping[str, int]:
        """How many ids, gaps and late ids the last run found."""
        facts = store.read_run_rows(self._app.catalog, "audit.stream_facts", self._app.run.run_id)
        positions = store.read_run_rows(self._app.catalog, "audit.stream_positions", self._app.run.run_id)
        gaps = [dict(row["gaps"] or ()) for row in positions]
        return {
            "ids": sum(row["ids"] for row in facts),
            "duplicates": sum(row["duplicate_ids"] for row in facts),
            "late": sum(row["late_ids"] or 0 for row in facts),
            "gaps": sum(sum(of_class.values()) for of_class in gaps),
            "bounds": sum(row["safe_bound"] is not None for row in positions),
        }

    def publish(self) -> None:
        """Publish the run, as if all checks had passed."""
        apps.published(self._app)

    def close(self) -> None:
        """Stop Spark."""
        self._app.spark.stop()

    def _insert(self, stream: Stream, table: Table, ids: Ids) -> None:
        of_stream = [one.name for of, one in self._pairs if of.name == stream.name]
        if table.name == "ex_outlier_stream":
            # Events that ceased to be outliers have an id here that no other table has.
            chosen = "pmod(n, 100) = 50"
        elif stream.name in ("events", "backfill"):
            # What changes a room's state has an event and a change of it.
            chosen = "pmod(n, 100) <> 50" if table.name == "events" else "pmod(n, 4) = 0"
        else:
            chosen = f"pmod(n, {len(of_stream)}) = {of_stream.index(table.name)}"
        self._begin_branch(table.name)
        columns = ", ".join(
            f"cast({self._value(stream, table, field)} as {field.dataType.simpleString()}) as {field.name}"
            for field in self._app.spark.table(f"bronze.{table.name}").schema
        )
        self._app.spark.sql(
            f"insert into bronze.{table.name} select {columns}"  # noqa: S608
            f" from (select id as n from range({ids[0] + 1}, {ids[1] + 1})) where not {_ROLLED_BACK} and {chosen}"
        )

    def _begin_branch(self, name: str) -> None:
        """Let the run's branch begin with what main has; one that a writer makes begins with nothing."""
        table = load_iceberg_table(self._app.spark, f"bronze.{name}")
        if table.currentSnapshot() is not None and not table.refs().containsKey(self._app.run.branch):
            table.manageSnapshots().createBranch(self._app.run.branch, table.currentSnapshot().snapshotId()).commit()

    def _value(self, stream: Stream, table: Table, field: StructField) -> str:
        if field.name == table.streams[stream.name]:
            return f"{stream.direction} * n"
        if field.name == table.writer_column:
            return f"element_at(array{_WRITERS}, cast(1 + pmod(n, 2) as int))"
        if field.name == "received_ts":
            return "1767225600000 + n"
        if field.name in table.primary_key:
            # As long as ids of events are.
            return (
                f"'{stream.name[:1]}' || md5(string(n)) || '0123456789'"
                if isinstance(field.dataType, StringType)
                else "n"
            )
        return "null"

    def _recorded(self) -> int:
        """Write what the copy would have written down; how many rows the run's tables hold."""
        now, run = datetime.now(UTC), self._app.run
        sequences = {stream.sequence: self._ends.get(stream.name, 1) for stream in self._catalogue.streams}
        handed_out = [{"name": name, "last_value": last, "is_called": True} for name, last in sequences.items()]
        taken = {"branch": run.branch, "taken_at": now, "sequences": handed_out, "drifted": {}, "novelties": []}
        store.append_audit_rows(self._app.catalog, "audit.snapshots", [taken], run)
        rows, ledger = 0, []
        for name in {table.name for _, table in self._pairs}:
            table = load_iceberg_table(self._app.spark, f"bronze.{name}")
            snapshot = table.snapshot(run.branch)
            rows += int(snapshot.summary()["total-records"])
            written = {"table_name": name, "snapshot_id": int(snapshot.snapshotId()), "statement": "bench"}
            ledger.append(written | {"branch": run.branch, "written_at": now})
        store.append_audit_rows(self._app.catalog, "audit.ledger", ledger, run)
        return rows

    def _new_app(self) -> SparkApp:
        self._runs += 1
        return apps.app(self._settings, self._runs)
