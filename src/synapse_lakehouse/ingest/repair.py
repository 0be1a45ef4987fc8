"""Replace the rows of differing key ranges on the run's branch with those of the source."""

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.iceberg.read.data_files import read_data_files
from synapse_lakehouse.iceberg.write.position_deletes import replace_rows
from synapse_lakehouse.ingest.copy_target import build_read_chunk
from synapse_lakehouse.ingest.table_copy import copy_in_worker
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes
from synapse_lakehouse.postgres.rows.copy_to_parquet import WrittenPart
from synapse_lakehouse.postgres.rows.key_ranges import key_range_spark_sql
from synapse_lakehouse.postgres.rows.range_digest import KeySlice, build_rows_query, row_hash_spark_sql
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp


class Repair:
    """Reads the differing key ranges of a table again from the snapshot and replaces them on the run's branch."""

    def __init__(
        self, app: SparkApp, snapshot: PostgresSnapshot, table: Table, part: KeySlice, ranges: Sequence[str]
    ) -> None:
        self.app, self.snapshot, self.table, self.part, self.ranges = app, snapshot, table, part, ranges
        self.name = f"bronze.{self.table.name}"
        self.seconds = 0.0
        self.counts = dict.fromkeys(("rows_lake", "rows_source", "rows_added", "rows_changed"), 0)
        self.removed: list[dict[str, Any]] = []

    def replace_ranges(self) -> None:
        """Replace the rows of the differing ranges, and append a corrected ledger row of the table."""
        app, spark = self.app, self.app.spark
        lake = app.catalog.load_table(self.name)
        statement = build_rows_query(self.table, self.ranges)
        chunk = build_read_chunk(app, self.snapshot, self.table, lake, statement)
        started = time.monotonic()
        (written,) = copy_in_worker(spark, [chunk])
        self.seconds = time.monotonic() - started
        outdated = f"{key_range_spark_sql(self.table)} in ({', '.join(map(repr, self.ranges))})"
        paths = [written.path] if written.path else []
        self._compare(
            spark.table(self.name).where(outdated), read_data_files(spark, self.name, paths) if paths else None
        )
        snapshot_id = replace_rows(spark, self.name, app.run.branch, outdated, paths, app.run.run_id)
        self._correct_ledger(snapshot_id, written)
        app.report_progress(
            f"{self.name} differed from the source in {len(self.ranges)} key ranges and was repaired: "
            f"{self.counts['rows_added']} rows were missing, {self.counts['rows_changed']} outdated, "
            f"{len(self.removed)} surplus"
        )

    def row(self) -> dict[str, Any]:
        """Return the row of ``audit.repairs``."""
        return self.counts | {
            "table_name": self.table.name,
            "slice": self.part.number,
            "ranges": list(self.ranges),
            "rows_removed": len(self.removed),
            "seconds": self.seconds,
            "repaired_at": datetime.now(UTC),
        }

    def deletions(self) -> Iterator[dict[str, Any]]:
        """Yield rows of ``audit.deletions``: keys that only the lake had."""
        now = datetime.now(UTC)
        for key in self.removed:
            yield {
                "table_name": self.table.name,
                "key": json.dumps(key, separators=(",", ":"), ensure_ascii=False),
                "reason": "found by comparing with the source",
                "deleted_at": now,
            }

    def _compare(self, before: DataFrame, after: DataFrame | None) -> None:
        key = [f.col(name) for name in self.table.primary_key]
        hashed = f.expr(row_hash_spark_sql(self.table)).alias("hash")
        old = before.select(*key, hashed)
        new = (before.limit(0) if after is None else after).select(*key, hashed)
        same_key = reduce(and_, (old[name].eqNullSafe(new[name]) for name in self.table.primary_key))
        self.removed = [row.asDict() for row in old.join(new, same_key, "left_anti").drop("hash").collect()]
        self.counts = {
            "rows_lake": old.count(),
            "rows_source": new.count(),
            "rows_added": new.join(old, same_key, "left_anti").count(),
            "rows_changed": new.join(old, same_key).where(old["hash"] != new["hash"]).count(),
        }

    def _correct_ledger(self, snapshot_id: int, reread: WrittenPart) -> None:
        hashes = {"hash_read": reread.hash_received, "hash_written": reread.hash_stored}
        for row in store.read_run_rows(self.app.catalog, "audit.ledger", self.app.run.run_id):
            if row["table_name"] == self.table.name:
                rows = {name: row[name] + reread.rows for name in ("rows_read", "rows_written")}
                hashed = {name: f"{combine_hashes([int(row[name], 16), value]):016x}" for name, value in hashes.items()}
                by_key = {"rows": reread.rows} | {name: f"{value:016x}" for name, value in hashes.items()}
                ranges = {"ranges": [*(row["ranges"] or ()), by_key]}
                now = {"branch": self.app.run.branch, "snapshot_id": snapshot_id, "written_at": datetime.now(UTC)}
                store.append_audit_rows(
                    self.app.catalog, "audit.ledger", [row | rows | hashed | ranges | now], self.app.run
                )
