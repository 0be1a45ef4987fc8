"""Whole runs on a homeserver with a separate state database."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from sample.environment import VERSION
from sample.homeserver import SERVER_NAME, homeserver
from sample.settle import settle
from sample.traffic import accounts, forks, messages, moderation, populate, rooms, visibility
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.dataframe_compare import compare_with_source, read_release
from tests.support.scenes import Scene, play
from tests.support.split_source import split_source
from tests.support.whole_runs import list_faults, query, run

pytestmark = pytest.mark.heavy

NEW_ROOM_NAME = (
    "insert into state_groups select 9000001, room_id, event_id from state_groups where id = {0}",
    "insert into state_group_edges (state_group, prev_state_group) values (9000001, {0})",
    "insert into state_groups_state select 9000001, room_id, type, state_key, event_id"
    " from state_groups_state where state_group = {0} limit 1",
)
MOVED_EVENT = "update event_to_state_groups set state_group = 9000001 where state_group = {0}"
BEFORE: tuple[Scene, ...] = (visibility.all_visibilities, rooms.long_state_chain, messages.redactions, accounts.devices)
DURING: tuple[Scene, ...] = (forks.forks, visibility.changing_visibility, messages.relations, moderation.purged_history)
AFTER: tuple[Scene, ...] = (moderation.deleted_rooms, moderation.erasure, accounts.receipts)


def test_a_split_homeserver_has_the_same_lake(
    new_lake: Callable[..., Settings], server: EmbeddedServer, source_copy: str
) -> None:
    as_of = {"lakehouse_as_of": datetime(2026, 11, 20, tzinfo=UTC)}
    whole = new_lake(synapse_dsn=source_copy, **as_of)
    with split_source(server) as (main, state):
        split = new_lake(synapse_dsn=main, synapse_state_dsn=state, **as_of)
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


def test_lost_groups_of_a_split_homeserver_are_found(
    new_lake: Callable[..., Settings], server: EmbeddedServer, source_copy: str
) -> None:
    findings = []
    with split_source(server) as (main, state):
        for databases, lossy in (
            ({"synapse_dsn": source_copy}, source_copy),
            ({"synapse_dsn": main, "synapse_state_dsn": state}, state),
        ):
            lake = new_lake(**databases)
            run(lake)
            with psycopg.connect(lossy) as connection:
                (group,) = connection.execute("select max(id) from state_groups").fetchone() or (0,)
                for table, column in (("state_groups", "id"), ("state_groups_state", "state_group")):
                    connection.execute(f"delete from {table} where {column} = {group}".encode())
            run(lake)
            failed = "select expectation, subject, severity, observed from audit.checks where not success order by all"
            findings.append(query(lake, failed))
    assert findings[0] == findings[1]
    assert any("state" in str(finding["subject"]) for finding in findings[1])


def run_and_read(settings: Settings) -> dict[str, tuple[int, int]]:
    """Run, and return the content of the new release."""
    run(settings)
    return read_release(settings)


def test_a_live_homeserver_with_two_databases_is_copied(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        for name in ("main", "state"):
            server.create_database(name)
        main, state = server.dsn("main"), server.dsn("state")
        with homeserver(tmp_path / "synapse", dsn=main, state_dsn=state) as hs, ThreadPoolExecutor(1) as runs:
            lake = new_lake(
                synapse_dsn=main,
                synapse_state_dsn=state,
                synapse_server_name=SERVER_NAME,
                synapse_config=hs.config_path,
            )
            stage = populate(hs)
            play(stage, BEFORE, VERSION)
            concurrent_run = runs.submit(run, lake)
            play(stage, DURING, VERSION)
            concurrent_run.result()
            play(stage, AFTER, VERSION)
            settle(main)
        with psycopg.connect(main) as without_state, pytest.raises(psycopg.errors.UndefinedTable):
            without_state.execute("select 1 from state_groups")
        run(lake)
        assert compare_with_source(lake) == {}
    assert list_faults(lake) == []
    assert query(lake, "select kind, subject from audit.incidents where begins") == []
