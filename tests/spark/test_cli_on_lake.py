"""The command reads Spark's views and merge-on-read deletes without a JVM."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.local.services import run_embedded_server
from synapse_lakehouse.report.table_diff import prepare_comparison

SPARK = """
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.config.settings import Settings

spark = create_spark_session("test", Settings(_env_file=None))
for statement in '''
create namespace gold
create table gold.events (event_id string, room_id string) using iceberg
  tblproperties ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')
insert into gold.events select '$' || id, '!' || (id % 3) from range(30)
create view gold.busy_rooms as select room_id, count(*) as events from gold.events group by room_id
create view gold.a_busiest as select * from lake.gold.busy_rooms where events >= 10
delete from gold.events where event_id = '$0'
'''.strip().replace(chr(10) + "  ", " ").splitlines():
    spark.sql(statement)
spark.stop()
"""


@pytest.fixture(scope="module")
def lake(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with run_embedded_server(Settings(_env_file=None, lakehouse_home=home)) as server:
        server.create_database("written_by_spark")
        settings = Settings(
            _env_file=None,
            lakehouse_home=home,
            lakehouse_catalog_uri=server.dsn("written_by_spark"),
            lakehouse_warehouse=str(tmp_path_factory.mktemp("warehouse")),
        )
        subprocess.run([sys.executable, "-c", SPARK], env=os.environ | settings.to_environment(), check=True)
        yield settings


def test_views_over_views_are_read_from_the_catalog(lake: Settings) -> None:
    with duckdb_reader.open_duckdb(lake) as connection:
        duckdb_reader.create_views(connection, lake, None, ["gold.a_busiest"])
        rows = connection.execute("select * from gold.a_busiest order by room_id").fetchall()
    assert rows == [("!1", 10), ("!2", 10)]


def test_deleted_rows_are_not_read(lake: Settings) -> None:
    with duckdb_reader.open_duckdb(lake) as connection:
        duckdb_reader.create_views(connection, lake, None, ["gold.events"])
        assert connection.execute("select count(*) from gold.events").fetchall() == [(29,)]


def test_deleted_rows_are_differences(lake: Settings) -> None:
    with duckdb_reader.open_duckdb(lake) as connection:
        location = list_catalog_entries(lake)["gold.events"].location
        first, last = (s["snapshot-id"] for s in duckdb_reader.read_metadata(connection, location)["snapshots"])
        removal = prepare_comparison(connection, "gold.events", location, first, last).compare(connection, ["event_id"])
        addition = prepare_comparison(connection, "gold.events", location, last, first).compare(
            connection, ["event_id"]
        )
    assert (removal.rows_before, removal.rows_after) == (30, 29)
    assert (removal.added, removal.changed, removal.removed) == (0, 0, 1)
    assert (addition.added, addition.changed, addition.removed) == (1, 0, 0)
