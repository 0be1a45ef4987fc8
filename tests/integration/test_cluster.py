"""Spark on a standalone cluster: a master and its workers, from pyspark's own jars, on loopback."""

import json
import subprocess
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.write import tables
from tests.conftest import HarshLake, Published, lakehouse, run_app
from tests.support.branch_views import create_branch_views
from tests.support.cluster import WorkerMachine, cluster
from tests.support.dataframe_compare import contents, differences, release_of
from tests.support.object_server import object_server
from tests.support.remote_workers import PYTHON, remote_machines

UNREADABLE = """
import os, sys
print(os.geteuid() != 0, [path for path in sys.argv[1:] if os.access(path, os.R_OK)])
"""


def test_workers_copied_every_row(harsh: HarshLake) -> None:
    assert harsh.applications == 2, "the copy and the state were made by both workers"
    copied = catalogue.load_catalogue().copied_tables()
    with duckdb_reader.open_duckdb(harsh.settings) as lake, psycopg.connect(str(harsh.settings.synapse_dsn)) as source:
        create_branch_views(lake, harsh.settings, harsh.run.branch, [f"bronze.{table.name}" for table in copied])
        assert {table.name: differences(table, lake, source) for table in copied} == {
            table.name: (0, 0) for table in copied
        }


@pytest.mark.heavy
def test_workers_without_a_shared_folder_copy_every_row(
    new_lake: Callable[..., Settings], source_copy: str, tmp_path: Path
) -> None:
    run = Run("manual", datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
    declared = catalogue.load_catalogue()
    with object_server(tmp_path) as server:
        machines = remote_machines(tmp_path, ("one", "two", "three"), server.keys())
        with cluster(tmp_path, machines) as spark:
            settings = new_lake(
                **server.settings(),
                synapse_dsn=source_copy,
                lakehouse_spark_secret_file=spark.secret_file,
                lakehouse_spark_properties={"spark.pyspark.python": PYTHON, "spark.executor.memory": "1g"},
            )
            _require_no_access(machines, PROJECT_FOLDER / "pyproject.toml", settings.lakehouse_home, spark.secret_file)
            tables.ensure_tables(open_catalog(settings), declared)
            for app in ("snapshot_tables", "resolve_state"):
                result = run_app(app, settings, run, SPARK_MASTER=spark.master, SPARK_LOCAL_IP="127.0.0.1")
                assert result.returncode == 0, result.stdout + result.stderr
            assert spark.applications() == 2, "both apps had executors on all workers"
        with duckdb_reader.open_duckdb(settings) as lake, psycopg.connect(source_copy) as source:
            names = [f"bronze.{table.name}" for table in declared.copied_tables()]
            create_branch_views(lake, settings, run.branch, [*names, "silver.state_positions"])
            assert {table.name: differences(table, lake, source) for table in declared.copied_tables()} == {
                table.name: (0, 0) for table in declared.copied_tables()
            }
            groups = lake.execute("select count(*) from silver.state_positions").fetchone()
            assert groups == source.execute("select count(*) from state_groups").fetchone()


def _require_no_access(machines: Iterable[WorkerMachine], *paths: Path) -> None:
    """Fail if a worker runs as root, or can read one of the driver's ``paths``."""
    for machine in machines:
        result = subprocess.run(
            [*machine.command, PYTHON, "-c", UNREADABLE, *paths],
            env=machine.variables, input="", capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert result.stdout == "True []\n"


@pytest.mark.heavy
def test_a_cluster_publishes_the_same_content(
    published: Published, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    release = release_of(published.settings)
    local_contents = contents(published.settings, release.tables)
    with duckdb_reader.open_duckdb(published.settings) as lake:
        duckdb_reader.create_views(lake, published.settings, release, ["silver.retention_time"])
        ((as_of,),) = lake.execute("select as_of from silver.retention_time").fetchall()
    elsewhere = new_lake(
        synapse_dsn=published.settings.synapse_dsn, lakehouse_as_of=datetime.fromtimestamp(as_of / 1000, UTC)
    )

    with cluster(tmp_path) as spark:
        connection = json.dumps({"conn_type": "spark", "host": spark.master, "extra": {"deploy-mode": "client"}})
        result = lakehouse(
            elsewhere, "run", "--date", f"{release.interval_start:%Y-%m-%d}", AIRFLOW_CONN_SPARK_DEFAULT=connection,
            **spark.variables(),
        )  # fmt: skip

    assert result.returncode == 0, result.stdout + result.stderr
    assert spark.applications() == 5, "the five Spark apps ran on the workers"
    cluster_release = release_of(elsewhere)
    assert cluster_release.interval_start == release.interval_start
    assert contents(elsewhere, cluster_release.tables) == local_contents
