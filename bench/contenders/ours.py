"""The lakehouse's own copy: runs in a warm Spark app, from the source's snapshot to the ledger."""

import os
import time
import uuid
from datetime import UTC, datetime, timedelta

from bench import lakes
from bench.contenders import Copied
from synapse_lakehouse.app import SparkApp
from synapse_lakehouse.bronze.attempts import on_a_snapshot
from synapse_lakehouse.bronze.copying import copy_tables
from synapse_lakehouse.lake import audit, tables
from synapse_lakehouse.lake.publishing import publish
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import Settings


class Ours:
    """A Spark driver that copies one table a run, as ``spark_apps/snapshot_tables.py`` copies them all."""

    def __init__(self, settings: Settings) -> None:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {settings.lakehouse_driver_memory} pyspark-shell"
        self.settings = settings
        self._runs = 0
        self._app = self._new_app()
        tables.ensure(self._app.catalog, lakes.declared())

    def clear(self) -> None:
        """Drop all tables and their files, so that the next run copies everything."""
        for schema in ("bronze", "audit"):
            for _, name in self._app.catalog.list_tables(schema):
                self._app.spark.sql(f"drop table if exists {schema}.{name} purge")
        tables.ensure(self._app.catalog, lakes.declared())

    def copy(self, table: str) -> None:
        """Copy ``table`` onto the branch of a new run: all of it, or what changed since the run that was published."""
        self._app = self._new_app()
        on_a_snapshot(self._app, copy_tables, lakes.declared(table))

    def copied(self) -> Copied:
        """What the last copy wrote down."""
        (row,) = audit.of_run(self._app.catalog, "audit.ledger", self._app.run.run_id)
        return Copied(row["rows_read"], row["bytes"])

    def publish(self) -> float:
        """Publish the last copy, as if all checks had passed; seconds that it took."""
        passed = {"suite": "bench", "expectation": "none", "subject": "bench", "severity": "fail", "success": True}
        stages = [passed | {"stage": stage, "checked_at": datetime.now(UTC)} for stage in ("bronze", "gold")]
        audit.append(self._app.catalog, "audit.checks", stages, self._app.run)
        started = time.monotonic()
        # Nobody else writes to this lake, so there is no lease to keep.
        publish(self._app.spark, self._app.catalog, self._app.run, str(self.settings.synapse_server_name), lambda: None)
        return time.monotonic() - started

    def close(self) -> None:
        """Stop Spark."""
        self._app.spark.stop()

    def _new_app(self) -> SparkApp:
        self._runs += 1
        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=self._runs)
        return SparkApp("bench", Run(f"bench-{uuid.uuid4().hex[:8]}", start, start + timedelta(days=1)), self.settings)
