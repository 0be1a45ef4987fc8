"""Copy a table with the lakehouse in a warm Spark app, from the PostgreSQL snapshot to the ledger."""

from bench import spark_runs
from bench.copy import lakes
from bench.copy.contenders import CopyResult
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.spark_app import SparkApp


class LakehouseCopy:
    """A Spark driver that copies one table in each run, like ``spark_apps/snapshot_tables.py``."""

    def __init__(self, settings: Settings) -> None:
        spark_runs.set_driver_memory(settings)
        self.settings = settings
        self._runs = 0
        self._app = self._new_app()
        tables.ensure_tables(self._app.catalog, lakes.select_tables())

    def clear(self) -> None:
        """Drop all tables and their files, so that the next copy is a full copy."""
        for schema in ("bronze", "audit"):
            for _, name in self._app.catalog.list_tables(schema):
                self._app.spark.sql(f"drop table if exists {schema}.{name} purge")
        tables.ensure_tables(self._app.catalog, lakes.select_tables())

    def copy(self, table: str) -> None:
        """Copy ``table`` to the branch of a new run, in full or since the last published run."""
        self._app = self._new_app()
        with snapshot_session(self._app, lakes.select_tables(table)) as session:
            copy_tables(session)

    def read_result(self) -> CopyResult:
        """Read the ledger of the last copy."""
        (row,) = store.read_run_rows(self._app.catalog, "audit.ledger", self._app.run.run_id)
        return CopyResult(row["rows_read"], row["bytes"])

    def publish(self) -> float:
        """Publish the last copy with passed checks, and return the seconds of the publication."""
        ledger = store.read_run_rows(self._app.catalog, "audit.ledger", self._app.run.run_id)
        facts = [{name: row[name] for name in ("table_name", "snapshot_id")} for row in ledger]
        store.append_audit_rows(self._app.catalog, "audit.table_facts", facts, self._app.run)
        return spark_runs.publish_run(self._app)

    def close(self) -> None:
        """Stop Spark."""
        self._app.spark.stop()

    def _new_app(self) -> SparkApp:
        self._runs += 1
        return spark_runs.new_app(self.settings, self._runs)
