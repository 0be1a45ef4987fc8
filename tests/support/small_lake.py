"""A lake of a few tables, which tests update, maintain, and query with the ``lakehouse`` command."""

import json
import runpy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from typer.testing import CliRunner, Result

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.cli import app as command
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.reconcile import reconcile_tables
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from synapse_lakehouse.spark_app import SparkApp
from tests.conftest import copied_source, lake_maker
from tests.support.dataframe_compare import differences
from tests.support.incremental_lake import IncrementalLake, open_incremental_lake


@dataclass
class SmallLake(IncrementalLake):
    """A lake that contains only the tables of ``declared``."""

    declared: Catalogue = field(default_factory=catalogue.load_catalogue)

    def copy(self, app: SparkApp) -> None:
        """Copy the source to the run's branch."""
        tables.ensure_tables(app.catalog, self.declared)
        with snapshot_session(app, self.declared) as session:
            copy_tables(session)

    def verify(self, app: SparkApp) -> list[dict[str, Any]]:
        """Compare the run's branch with the source; return the rows of ``audit.reconciliation``."""
        with export_snapshot(self.settings, self.declared) as (connection, snapshot):
            reconcile_tables(app, self.declared, connection, snapshot)
        return store.read_run_rows(app.catalog, "audit.reconciliation", app.run.run_id)

    def maintain(self, days: int = 0) -> None:
        """Run the app that maintains the lake's files."""
        app = replace(self.app(), settings=self.settings.model_copy(update={"lakehouse_erasure_days": days}))
        app.lease.acquire()
        try:
            runpy.run_path(str(PROJECT_FOLDER / "spark_apps" / "maintain_lake.py"))["maintain_lake"](app)
        finally:
            app.lease.release()

    def count_delete_files(self, name: str) -> int:
        """Return the number of delete files of the table ``bronze.<name>``."""
        tasks = self.app().catalog.load_table(f"bronze.{name}").scan().plan_files()
        return sum(len(task.delete_files) for task in tasks)

    def prove(self, user: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
        """Run ``lakehouse prove-erased``; return its exit code, and its rows by table and kind of content."""
        result = self.run_command("prove-erased", user, "--format", "json")
        return result.exit_code, {(row["table"], row["content"]): row for row in json.loads(result.stdout or "[]")}

    def run_command(self, *arguments: str) -> Result:
        """Run the ``lakehouse`` command on this lake."""
        return CliRunner().invoke(command, arguments, env=self.settings.to_environment() | {"COLUMNS": "200"})

    def equals_source(self) -> bool:
        """Return whether the latest release has the source's rows.

        Tables with doubles are not compared, because NaN differs from itself in Python.
        """
        with (
            duckdb_reader.open_duckdb(self.settings) as lake,
            psycopg.connect(str(self.settings.synapse_dsn)) as source,
        ):
            release = duckdb_reader.get_release(lake, self.settings)
            duckdb_reader.create_views(lake, self.settings, release, release.tables)
            comparable = [
                table
                for table in self.declared.copied_tables()
                if "double" not in {column.data_type for column in table.columns}
            ]
            return all(differences(table, lake, source) == (0, 0) for table in comparable)


@contextmanager
def small_lake(
    server: EmbeddedServer, settings: Settings, folder: Path, declared: Iterable[Table]
) -> Iterator[SmallLake]:
    """Yield an empty lake of a few tables. Its source is a copy of the sample that the test may change."""
    few = catalogue.load_catalogue().model_copy(update={"tables": tuple(declared)})
    with (
        copied_source(server) as dsn,
        lake_maker(server, settings, folder) as make,
        open_incremental_lake(make(synapse_dsn=dsn)) as started,
    ):
        yield SmallLake(started.settings, declared=few)
