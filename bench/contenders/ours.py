"""The lakehouse's own copy: runs in a warm Spark app, from the source's snapshot to the ledger."""

from bench import apps, lakes
from bench.contenders import Copied
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.spark_app import SparkApp


class Ours:
    """A Spark driver that copies one table a run, as ``spark_apps/snapshot_tables.py`` copies them all."""

    def __init__(self, settings: Settings) -> None:
        apps.give_memory(settings)
        self.settings = settings
        self._runs = 0
        self._app = self._new_app()
        tables.ensure_tables(self._app.catalog, lakes.declared())

    def clear(self) -> None:
        """Drop all tables and their files, so that the next run copies everything."""
        for schema in ("bronze", "audit"):
            for _, name in self._app.catalog.list_tables(schema):
                self._app.spark.sql(f"drop table if exists {schema}.{name} purge")
        tables.ensure_tables(self._app.catalog, lakes.declared())

    def copy(self, table: str) -> None:
        """Copy ``table`` onto the branch of a new run: all of it, or what changed since the run that was published."""
        self._app = self._new_app()
        with snapshot_session(self._app, lakes.declared(table)) as session:
            copy_tables(session)

    def copied(self) -> Copied:
        """What the last copy wrote down."""
        (row,) = store.read_run_rows(self._app.catalog, "audit.ledger", self._app.run.run_id)
        return Copied(row["rows_read"], row["bytes"])

    def publish(self) -> float:
        """Publish the last copy, as if it had been measured and all checks had passed; seconds that it took."""
        copied = store.read_run_rows(self._app.catalog, "audit.ledger", self._app.run.run_id)
        facts = [{name: row[name] for name in ("table_name", "snapshot_id")} for row in copied]
        store.append_audit_rows(self._app.catalog, "audit.table_facts", facts, self._app.run)
        return apps.published(self._app)

    def close(self) -> None:
        """Stop Spark."""
        self._app.spark.stop()

    def _new_app(self) -> SparkApp:
        self._runs += 1
        return apps.app(self.settings, self._runs)
