"""Changed rooms are resolved from their first changes on. The result equals that of a full resolve."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.commits import ensure_branch
from synapse_lakehouse.iceberg.write.publish import fast_forward_main
from synapse_lakehouse.room_state.resolve import resolve_rooms
from synapse_lakehouse.spark_app import SparkApp
from tests.support.state_rooms import KINDS, World, begin_rooms, grow_chain, grow_rooms

BRONZE = ("bronze.state_groups", "bronze.state_group_edges", "bronze.state_groups_state")
SILVER = ("silver.state_positions", "silver.state_intervals", "silver.state_faults")


@pytest.fixture
def app(new_lake: Callable[..., Settings]) -> Iterator[SparkApp]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    app = SparkApp("rooms", Run("rooms", start, start + timedelta(days=1)), new_lake())
    tables.ensure_tables(app.catalog, catalogue.load_catalogue())
    yield app
    app.spark.stop()


def read_state(spark: SparkSession) -> dict[str, list[str]]:
    return {name: sorted(map(repr, spark.table(name).collect())) for name in SILVER}


def insert_new_groups(app: SparkApp, world: World, first: int) -> None:
    """Append the rows of groups from ``first`` on to the run's branch."""
    for name, rows in zip(BRONZE, world.tables(), strict=True):
        ensure_branch(app.spark, name, app.run.branch)
        column = rows.column_names[0]
        new = app.spark.createDataFrame(rows.to_pandas()) if rows.num_rows else app.spark.table(name)
        new.where(f"{column} >= {first}").select(rows.column_names).writeTo(name).append()


def check(app: SparkApp, is_partial: bool) -> dict[str, list[str]]:
    """Resolve changed rooms, compare the tables with those of a full resolve, and publish them."""
    result = resolve_rooms(app.spark, app.catalog, app.run.branch, minimum_rows=0, max_renumbered_share=1)
    assert result.is_partial == is_partial
    partial_state = read_state(app.spark)
    assert not resolve_rooms(app.spark, app.catalog, app.run.branch, minimum_rows=1_000_000).is_partial
    assert read_state(app.spark) == partial_state
    for name in (*BRONZE, *SILVER, "silver.state_changes"):
        fast_forward_main(app.spark, name, app.run.branch, "release-1")
    return partial_state


def test_appended_groups_are_resolved_as_in_a_full_resolve(app: SparkApp) -> None:
    """Groups are added at the end of rooms and elsewhere. Then a group, an edge and a row are deleted."""
    world = World(random.Random(11))
    rooms = begin_rooms(world, [grow_chain, *KINDS], 30)
    grow_rooms(world, rooms, 90)
    insert_new_groups(app, world, 0)
    check(app, is_partial=False)
    first = world.next_id
    grow_rooms(world, rooms, 20)
    insert_new_groups(app, world, first)
    check(app, is_partial=True)
    first = world.next_id
    tip = max(group for group, room in world.groups.items() if room.startswith("!0:"))
    world.add(world.groups[tip], world.states[tip] | {("m.room.name", ""): world.event()}, tip)
    insert_new_groups(app, world, first)
    check(app, is_partial=True)
    deleted = sorted(world.edges)[3]
    app.spark.sql(f"delete from bronze.state_group_edges where state_group = {deleted}")
    app.spark.sql(f"delete from bronze.state_groups where id = {max(world.groups)}")
    app.spark.sql(f"delete from bronze.state_groups_state where state_group = {sorted(world.rows)[5]}")
    check(app, is_partial=True)
