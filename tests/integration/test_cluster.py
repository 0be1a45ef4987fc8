"""Spark on a standalone cluster: a master and two workers, from pyspark's own jars, on loopback."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.conftest import HarshLake, Published, lakehouse
from tests.support.branch_views import create_branch_views
from tests.support.cluster import cluster
from tests.support.dataframe_compare import contents, differences, release_of


def test_workers_copied_every_row(harsh: HarshLake) -> None:
    assert harsh.applications == 2, "the copy and the state were made by both workers"
    tables = catalogue.load_catalogue().copied_tables()
    with duckdb_reader.open_duckdb(harsh.settings) as lake, psycopg.connect(str(harsh.settings.synapse_dsn)) as source:
        create_branch_views(lake, harsh.settings, harsh.run.branch, [f"bronze.{table.name}" for table in tables])
        assert {table.name: differences(table, lake, source) for table in tables} == {
            table.name: (0, 0) for table in tables
        }


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
