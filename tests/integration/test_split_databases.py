"""Whole runs: a homeserver with split databases has the same lake as one with a single database."""

from collections.abc import Callable
from datetime import UTC, datetime

import psycopg
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import lakehouse
from tests.support.dataframe_compare import contents
from tests.support.split_source import split_source

NEW_ROOM_NAME = (
    "insert into state_groups select 9000001, room_id, event_id from state_groups where id = {0}",
    "insert into state_group_edges (state_group, prev_state_group) values (9000001, {0})",
    "insert into state_groups_state select 9000001, room_id, type, state_key, event_id"
    " from state_groups_state where state_group = {0} limit 1",
)
MOVED_EVENT = "update event_to_state_groups set state_group = 9000001 where state_group = {0}"


@pytest.mark.heavy
def test_a_split_homeserver_has_the_same_lake(
    new_lake: Callable[..., Settings], server: EmbeddedServer, source_copy: str
) -> None:
    moment = {"lakehouse_as_of": datetime(2026, 11, 20, tzinfo=UTC)}
    whole = new_lake(synapse_dsn=source_copy, **moment)
    with split_source(server) as (main, state):
        split = new_lake(synapse_dsn=main, synapse_state_dsn=state, **moment)
        first = [run_and_read(lake) for lake in (whole, split)]
        assert first[0] == first[1]

        with psycopg.connect(main) as connection:
            (group,) = connection.execute("select max(state_group) from event_to_state_groups").fetchone() or (0,)
        for dsn in (source_copy, state):
            with psycopg.connect(dsn) as connection:
                for statement in NEW_ROOM_NAME:
                    connection.execute(statement.format(group).encode())
        for dsn in (source_copy, main):
            with psycopg.connect(dsn) as connection:
                connection.execute(MOVED_EVENT.format(group).encode())
        second = [run_and_read(lake) for lake in (whole, split)]
    assert second[0] == second[1]
    assert second[1]["bronze.event_to_state_groups"] != first[1]["bronze.event_to_state_groups"]
    assert second[1]["silver.state_positions"] != first[1]["silver.state_positions"]


def run_and_read(settings: Settings) -> dict[str, tuple[int, int]]:
    """Run, and return rows and hashes of the tables of bronze, silver and gold in the new release."""
    result = lakehouse(settings, "run")
    assert result.returncode == 0, result.stdout + result.stderr
    with duckdb_reader.open_duckdb(settings) as connection:
        release = duckdb_reader.get_release(connection, settings)
    return contents(settings, release.tables)
