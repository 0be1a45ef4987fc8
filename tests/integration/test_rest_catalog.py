"""Spark, PyIceberg and DuckDB use a real Iceberg REST catalog, with a warehouse on a real S3 server."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.commits import ensure_branch
from synapse_lakehouse.iceberg.write.publish import create_views, fast_forward_main
from tests.support.object_server import object_server

RUN = Run("manual", datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
NAME = "bronze.state_groups"


@pytest.mark.heavy
def test_spark_reads_and_publishes_a_branch(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    if session := SparkSession._instantiatedSession:
        session.stop()
    with object_server(tmp_path) as server:
        settings = new_lake(**server.settings())
        tables.ensure_tables(open_catalog(settings), catalogue.load_catalogue())
        spark = create_spark_session("test", settings, RUN.branch)
        try:
            ensure_branch(spark, NAME, RUN.branch)
            spark.sql(f"insert into {NAME} (id, room_id) values (1, '!room')")
            rows = spark.table(NAME).persist(StorageLevel.DISK_ONLY)
            assert [(row.id, row.room_id) for row in rows.collect()] == [(1, "!room")]
            fast_forward_main(spark, NAME, RUN.branch, RUN.tag)
            # SeaweedFS has no views.
            create_views(spark, {"bronze.ids": f"select id from {NAME}"})
        finally:
            spark.stop()
        assert open_catalog(settings).load_table(NAME).scan().to_arrow()["id"].to_pylist() == [1]
        with duckdb_reader.open_duckdb(settings) as lake:
            duckdb_reader.create_views(lake, settings, None, [NAME])
            assert lake.execute(f"select id, room_id from {NAME}").fetchall() == [(1, "!room")]
