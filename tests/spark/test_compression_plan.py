"""Plans from the lake equal plans from the database, for rooms of every kind and for partly compressed rooms."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli import app as command
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.compress_room import plan_room
from synapse_lakehouse.compressor.plan import CompressionPlanner
from synapse_lakehouse.compressor.postgres.session_settings import WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.snapshot_connections import connect_readers
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.spark_app import SparkApp
from tests.support.incremental_lake import open_incremental_lake
from tests.support.state_database import read_table, state_database, store
from tests.support.state_rooms import KINDS, World, begin_rooms, grow_rooms, purge

COLUMNS = {
    "state_groups": "id, room_id",
    "state_group_edges": "state_group, prev_state_group",
    "state_groups_state": "state_group, type, state_key, event_id",
    "event_to_state_groups": "event_id, state_group",
    "state_groups_pending_deletion": "state_group",
}
CREATE_EVENT_TABLE = "CREATE TABLE event_to_state_groups (event_id text, state_group bigint)"
ALL_SETTINGS = [
    CompressorSettings(strategy=Strategy.BEST, max_chain=20, number_of_rooms=1000),
    CompressorSettings.model_validate({"default_levels": "10,5", "chunk_size": 30, "number_of_rooms": 1000}),
]


@contextmanager
def rooms_database(server: EmbeddedServer) -> Iterator[tuple[str, World, Callable[[int], None]]]:
    """Yield a database with rooms of every kind and unreferenced groups, its model, and a function that adds groups."""
    world = World(random.Random(7))
    growing_rooms = begin_rooms(world, KINDS, 400)
    with state_database(server) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(CREATE_EVENT_TABLE)

        def add_groups(groups: int) -> None:
            grow_rooms(world, growing_rooms, groups)
            store(world, dsn)
            connection.execute(
                "insert into event_to_state_groups select '$' || id, id from state_groups where id % 5 > 0"
                " and id not in (select state_group from event_to_state_groups)"
            )

        yield dsn, world, add_groups


def copy_database(app: SparkApp, dsn: str) -> Release:
    """Copy the database's tables to the lake, and return them as a release."""
    snapshot_ids: dict[str, int] = {}
    for name, columns in COLUMNS.items():
        table = app.catalog.load_table(f"bronze.{name}")
        schema, rows = tables.get_arrow_schema(catalogue.load_catalogue().table(name)), read_table(dsn, columns, name)
        values = [
            rows[column.name].cast(column.type)
            if column.name in rows.column_names
            else pa.nulls(len(rows), column.type)
            for column in schema
        ]
        table.overwrite(pa.table(values, schema=schema))
        snapshot = table.refresh().current_snapshot()
        app.spark.sql(f"refresh table bronze.{name}")
        if snapshot:
            snapshot_ids[f"bronze.{name}"] = snapshot.snapshot_id
    return cast(Release, SimpleNamespace(number=1, tables=snapshot_ids))


def assert_same(app: SparkApp, release: Release, dsn: str) -> None:
    for compressor_settings in ALL_SETTINGS:
        with connect_readers(dsn, app.settings, WRITE_DSN_SETTING) as open_reader, open_reader() as reader:
            selected = reader.select_rooms(compressor_settings)
            planner = CompressionPlanner(app.spark, release, compressor_settings)
            assert list(planner.select_rooms(reader.read_last_compressed(compressor_settings.strategy))) == selected
            actual = {
                row["room_id"]: row
                for row in planner.plan_rooms({room: reader.read_progress(room) for room in selected})
            }
            expected: dict[str, dict[str, Any]] = {}
            for room in selected:
                try:
                    expected[room] = asdict(plan_room(reader.read_room(room), compressor_settings)[1]) | {
                        "skipped": None
                    }
                except InvalidStateGroupsError as error:
                    expected[room] = {"skipped": str(error)}
        assert len(expected) > 5
        assert {room: {name: actual[room][name] for name in row} for room, row in expected.items()} == expected
        assert actual.keys() == expected.keys()


@pytest.mark.heavy
def test_the_lake_plans_as_the_database_does(
    server: EmbeddedServer, new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    with rooms_database(server) as (dsn, world, add_groups), open_incremental_lake(new_lake(synapse_dsn=dsn)) as lake:
        now = datetime.now(UTC)
        app = SparkApp("test", Run("plan", now.replace(year=2025), now), lake.settings, writes_branches=False)
        tables.ensure_tables(app.catalog, catalogue.load_catalogue())
        add_groups(1200)
        purge(world, 0.02, set())
        add_groups(100)
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "insert into state_groups_pending_deletion (state_group, insertion_ts)"
                " select id, 1 from state_groups where id % 35 = 0"
            )
        assert_same(app, copy_database(app, dsn), dsn)

        monkeypatch.setenv("SYNAPSE_DSN", dsn)
        monkeypatch.setenv("SYNAPSE_WRITE_DSN", dsn)
        monkeypatch.setenv("LAKEHOUSE_HOME", str(lake.settings.lakehouse_home))
        result = CliRunner().invoke(
            command, ["compress", "apply", "--levels", "10,5", "--chunk-size", "30", "--number-of-rooms", "4", "--yes"]
        )
        assert result.exit_code == 0, result.output
        add_groups(300)
        assert_same(app, copy_database(app, dsn), dsn)
