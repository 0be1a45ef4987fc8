"""A second row for a piece of state is damage of the source: the release is published, with a finding."""

from collections.abc import Iterator
from typing import Any

import pytest

from expectations import validate
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build import project
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.room_state.resolve import resolve_rooms
from synapse_lakehouse.spark_app import SparkApp
from synapse_lakehouse.streams import pipeline
from tests.support.incremental_lake import IncrementalLake, Source, open_lake_of_tables

COPIED = (
    "stream_positions", "event_to_state_groups", "state_groups", "state_group_edges", "state_groups_state",
)  # fmt: skip
BUILD = ["build", "--select", "+repeated_state_rows", "--exclude-resource-type", "unit_test"]


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, source_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IncrementalLake]:
    with open_lake_of_tables(COPIED, server, settings, source_dsn, tmp_path_factory.mktemp("repeated")) as lake:
        yield lake


def audit(lake: IncrementalLake, app: SparkApp) -> list[str]:
    """Failed checks of the rows of state on the run's branch. The first release has no measurements of other tables."""
    pipeline.measure(app, lambda _: None).append(app.catalog, app.run)
    failures = validate.validate_bronze(lake.settings, app.catalog, app.run).failures
    return [check.expectation for check in failures if check.subject == "bronze.state_groups_state"]


def run(lake: IncrementalLake) -> dict[str, Any]:
    """Copy, audit and publish: the ledger's row of the table."""
    app = lake.app()
    lake.copy(app)
    assert audit(lake, app) == []
    lake.publish(app)
    assert lake.compare_with_source() == {}
    (row,) = (row for row in lake.ledger(app) if row["table_name"] == "state_groups_state")
    return row


def derive(lake: IncrementalLake) -> tuple[list[tuple[Any, ...]], set[str]]:
    """Resolve the state, build and test the table of repeated rows: these rows, and the events of the room's topics."""
    app = lake.app()
    resolve_rooms(app.spark, app.catalog, app.run.branch)
    built = project.run_dbt(app, BUILD)
    assert built.done.success, project.describe_failure(built.done)
    topics = app.spark.table("silver.state_intervals").where("room_id = '!r' and type = 'm.room.topic'")
    repeated = app.spark.table("silver.repeated_state_rows")
    return [tuple(row) for row in repeated.collect()], {row.event_id for row in topics.collect()}


def store(source: Source, group: int, event: str) -> None:
    """Store a topic in a state group."""
    source.execute("insert into state_groups_state values (%s, '!r', 'm.room.topic', '', %s)", [group, event])


def test_synapse_stores_a_group_again_and_does_not_find_its_row(lake: IncrementalLake, source: Source) -> None:
    """The index lacks the row of a group, and Synapse deletes the predecessor of the group."""
    predecessor, group, other = 8_000_000, 8_000_001, 8_000_002
    for number in (predecessor, group, other):
        source.execute("insert into state_groups (id, room_id, event_id) values (%s, '!r', '$')", [number])
    source.execute("insert into state_group_edges values (%s, %s)", [group, predecessor])
    store(source, predecessor, "$earlier")
    store(source, group, "$hidden")
    store(source, other, "$other")
    run(lake)

    store(source, group, "$earlier")
    source.execute("delete from state_group_edges where state_group = %s", [group])
    source.execute("delete from state_groups_state where state_group = %s", [predecessor])
    source.execute("delete from state_groups where id = %s", [predecessor])
    # As many rows were inserted as deleted, so only the rows themselves show which ones.
    row = run(lake)
    assert (row["extent"], row["rows_replaced"], row["rows_deleted"]) == ("changed", 0, 1)
    repeated = (group, "m.room.topic", "", "!r", 2, "$earlier", "$hidden")
    assert derive(lake) == ([repeated], {"$hidden", "$other"})

    # The repeated row stays, and other rows change.
    source.execute("update state_groups_state set event_id = '$changed' where state_group = %s", [other])
    row = run(lake)
    assert (row["extent"], row["rows_read"], row["rows_deleted"]) == ("changed", 1, 1)

    source.execute("delete from state_groups_state where state_group = %s and event_id = '$earlier'", [group])
    assert run(lake)["extent"] == "changed"


def test_a_row_that_was_copied_twice_is_a_fault_of_the_copy(lake: IncrementalLake, source: Source) -> None:
    """The number of rows is right, because another row is missing."""
    store(source, 8_000_003, "$new")
    app = lake.app()
    lake.copy(app)
    app.spark.sql(
        "insert into bronze.state_groups_state select * from bronze.state_groups_state where event_id = '$new'"
    )
    app.spark.sql("delete from bronze.state_groups_state where event_id = '$hidden'")
    assert audit(lake, app) == ["every (state_group, type, state_key, event_id) occurs once"]
