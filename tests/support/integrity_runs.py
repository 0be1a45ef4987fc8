"""A lake whose runs detect damage of the source, in this process, with the functions of the Spark apps."""

from typing import Any, Final

from synapse_lakehouse import catalogue
from synapse_lakehouse.dbt_build import project
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.check_indexes import check_indexes
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.room_state.resolve import resolve_rooms
from synapse_lakehouse.spark_app import SparkApp
from tests.support.incremental_lake import IncrementalLake

DAMAGE: Final = {
    "gold.state_integrity": "severity <> 'info'",
    "gold.state_resets": "true",
    "silver.state_changes": "true",
}
"""Table → condition of its rows that report damage of the source."""


class IntegrityRuns(IncrementalLake):
    """A lake whose runs compare indexes, resolve room state, and build the tables of DAMAGE and their inputs."""

    def copy(self, app: SparkApp) -> None:
        """Copy the source to the run's branch, and compare all indexes with the copy."""
        tables.ensure_tables(app.catalog, catalogue.load_catalogue())
        with snapshot_session(app) as session:
            copy_tables(session)
            check_indexes(session)

    def publish(self, app: SparkApp) -> None:
        """Resolve the state, build the models, run their data tests, and publish."""
        resolve_rooms(app.spark, app.catalog, app.run.branch)
        models = ["--select", "+state_integrity", "+state_resets", "--indirect-selection", "cautious"]
        built = project.run_dbt(app, ["build", "--exclude-resource-type", "unit_test", *models])
        assert built.done.success, project.describe_failure(built.done)
        super().publish(app)

    def damage(self) -> list[dict[str, Any]]:
        """Return the rows of DAMAGE in the newest release."""
        with duckdb_reader.open_duckdb(self.settings) as lake:
            release = duckdb_reader.get_release(lake, self.settings)
            duckdb_reader.create_views(lake, self.settings, release, [*DAMAGE])
            rows = []
            for table, condition in DAMAGE.items():
                cursor = lake.execute(f"select * from {table} where {condition}")
                names = [column[0] for column in cursor.description or ()]
                rows += [{"table": table} | dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return rows
