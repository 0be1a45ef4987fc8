"""A lake that copies its source repeatedly, in this process, with the functions of the Spark apps."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.publish import publish_branch
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.spark_app import SparkApp
from tests.conftest import lake_maker
from tests.support.dataframe_compare import compare_with_source

DAY = datetime(2026, 11, 1, tzinfo=UTC)
_DECLARED = catalogue.load_catalogue()
"""The whole catalogue, even while a test replaces ``load_catalogue``."""

Source = psycopg.Connection[tuple[object, ...]]
"""A connection with which tests change Synapse's database."""


@dataclass
class IncrementalLake:
    """A lake whose copies each continue from the published release."""

    settings: Settings
    runs: int = field(default=0)

    def app(self) -> SparkApp:
        """Return the app that copies in the next run."""
        self.runs += 1
        start = DAY + timedelta(days=self.runs)
        return SparkApp("test", Run(f"test_{self.runs}", start, start + timedelta(days=1)), self.settings)

    def advance(self) -> dict[str, dict[str, Any]]:
        """Copy and publish; return the run's ledger rows by table."""
        app = self.app()
        self.copy(app)
        self.publish(app)
        return {row["table_name"]: row for row in self.ledger(app)}

    def ledger(self, app: SparkApp) -> list[dict[str, Any]]:
        """Return the run's ledger rows."""
        return store.read_run_rows(app.catalog, "audit.ledger", app.run.run_id)

    def copy(self, app: SparkApp) -> None:
        """Copy the source to the run's branch."""
        tables.ensure_tables(app.catalog, catalogue.load_catalogue())
        with snapshot_session(app) as session:
            copy_tables(session)

    def publish(self, app: SparkApp) -> None:
        """Publish the run's branch without an audit."""
        passed = {"suite": "", "expectation": "", "subject": "", "severity": "fail", "success": True, "observed": ""}
        checks = [passed | {"stage": stage, "checked_at": datetime.now(UTC)} for stage in ("bronze", "gold")]
        store.append_audit_rows(app.catalog, "audit.checks", checks, app.run)
        self.measure(app)
        publish_branch(app.spark, app.catalog, app.run, str(self.settings.synapse_server_name), lambda: None)

    def measure(self, app: SparkApp) -> None:
        """Record a measurement of each table of the run that has none."""
        measured = {row["table_name"] for row in store.read_run_rows(app.catalog, "audit.table_facts", app.run.run_id)}
        values = {"rows": 0, "null_keys": 0, "duplicate_keys": 0, "measured_at": datetime.now(UTC)}
        facts = [
            values | {name: row[name] for name in ("table_name", "snapshot_id")}
            for row in self.ledger(app)
            if row["table_name"] not in measured
        ]
        store.append_audit_rows(app.catalog, "audit.table_facts", facts, app.run)

    def compare_with_source(self) -> dict[str, tuple[int, int]]:
        """Return the tables that differ from the source, as :func:`compare_with_source` does."""
        return compare_with_source(self.settings)

    def deletions(self) -> list[tuple[str, str]]:
        """Return the table and the key of each row of ``audit.deletions``."""
        rows = self.app().catalog.load_table("audit.deletions").scan().to_arrow().to_pylist()
        return [(row["table_name"], row["key"]) for row in rows]


@contextmanager
def open_incremental_lake(settings: Settings) -> Iterator[IncrementalLake]:
    """Yield a lake under ``settings``. Its Spark session ends with the context."""
    _end_session()
    yield IncrementalLake(settings)
    _end_session()


def _end_session() -> None:
    # The active session belongs to a thread, and a copy starts Spark in another thread.
    if session := SparkSession._instantiatedSession:
        session.stop()


@contextmanager
def open_lake_of_tables(
    names: Iterable[str], server: EmbeddedServer, settings: Settings, source: str, folder: Path
) -> Iterator[IncrementalLake]:
    """Yield a lake with a copy of the tables ``names`` of a source."""
    few = _DECLARED.model_copy(update={"tables": tuple(map(_DECLARED.table, names)), "streams": ()})
    with pytest.MonkeyPatch.context() as patched, lake_maker(server, settings, folder) as make:
        patched.setattr(catalogue, "load_catalogue", lambda: few)
        with open_incremental_lake(make(synapse_dsn=source)) as lake:
            lake.advance()
            yield lake
