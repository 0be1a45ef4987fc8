"""Reused numbers of state groups are no damage, and the damage of a deleted room disappears."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sample.client import Client
from sample.homeserver import DATABASE, SERVER_NAME, Synapse, homeserver
from sample.settle import settle
from sample.traffic.moderation import delete_room
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.incremental_lake import open_incremental_lake
from tests.support.integrity_runs import IntegrityRuns
from tests.support.state_loss import execute, read_states

pytestmark = pytest.mark.heavy

HISTORY = ("gold.state_resets", "silver.state_changes")
TOPICS = 5


@pytest.fixture
def lake(server: EmbeddedServer, new_lake: Callable[..., Settings], tmp_path: Path) -> Iterator[IntegrityRuns]:
    """Yield a lake of an empty database for Synapse."""
    server.create_database(DATABASE)
    settings = new_lake(
        synapse_dsn=server.dsn(DATABASE), synapse_server_name=SERVER_NAME, synapse_config=tmp_path / "homeserver.yaml"
    )
    with open_incremental_lake(settings):
        yield IntegrityRuns(settings)
    server.tool("dropdb", "--force", DATABASE)


@contextmanager
def synapse(server: EmbeddedServer, folder: Path, *people: Client) -> Iterator[Synapse]:
    """Run Synapse, and wait until it has processed everything before it stops."""
    with homeserver(folder, dsn=server.dsn(DATABASE), workers=False) as hs:
        for client in people:
            client.connection = hs.connection
        yield hs
        settle(hs.dsn)


def test_reused_state_groups_are_not_changed(server: EmbeddedServer, lake: IntegrityRuns, tmp_path: Path) -> None:
    """After a restore of a dump, Synapse creates other state groups with numbers that a release already has."""
    dsn, dump = server.dsn(DATABASE), tmp_path / "dump.sql"
    with synapse(server, tmp_path) as hs:
        ada = hs.register("ada")
        room = ada.create_room(preset="public_chat")
        change_topics(ada, room)
    with dump.open("wb") as file:
        server.tool("pg_dump", "--no-owner", database=DATABASE, stdout=file)
    assert run(lake) == []
    with synapse(server, tmp_path, ada):
        change_topics(ada, room)
    assert run(lake) == []
    states = read_states(dsn)

    server.tool("dropdb", "--force", DATABASE)
    server.create_database(DATABASE)
    with dump.open("rb") as file:
        server.tool("psql", "-Xq", "-v", "ON_ERROR_STOP=1", database=DATABASE, stdin=file, stdout=subprocess.DEVNULL)
    with synapse(server, tmp_path, ada):
        change_topics(ada, ada.create_room(preset="public_chat"))
        change_topics(ada, room)
    restored = read_states(dsn)
    reused = [group for group in restored.keys() & states.keys() if restored[group] != states[group]]
    assert reused
    assert run(lake) == []


def test_damage_of_a_deleted_room_disappears(server: EmbeddedServer, lake: IntegrityRuns, tmp_path: Path) -> None:
    dsn = server.dsn(DATABASE)
    with synapse(server, tmp_path) as hs:
        ada = hs.register("ada", admin=True)
        damaged, other = (ada.create_room(preset="public_chat") for _ in range(2))
        for room in (damaged, other):
            change_topics(ada, room)
    assert run(lake) == []
    for room in (damaged, other):
        reset_topic(dsn, room)
    expected = {(table, room) for table in HISTORY for room in (damaged, other)}
    assert {(row["table"], row["room_id"]) for row in run(lake)} >= expected
    with synapse(server, tmp_path, ada):
        delete_room(ada, damaged, {"purge": True, "block": False})
    remaining = {(row["table"], row["room_id"]) for row in run(lake) if row["table"] in HISTORY}
    assert remaining == {(table, other) for table in HISTORY}


def run(lake: IntegrityRuns) -> list[dict[str, Any]]:
    """Add a release, and return its damage."""
    lake.advance()
    damage = lake.damage()
    print(f"run {lake.runs}: {damage}", flush=True)
    return damage


def change_topics(client: Client, room: str) -> None:
    for number in range(TOPICS):
        client.set_state(room, "m.room.topic", {"topic": f"{number} of {time.time_ns()}"})


def reset_topic(dsn: str, room: str) -> None:
    """Delete the newest topic from the room's state groups, and make the previous topic current."""
    is_topic = "type = 'm.room.topic'"
    newest, earlier = execute(
        dsn,
        f"select event_id from events join state_events using (event_id, room_id, type, state_key)"
        f" where room_id = '{room}' and {is_topic} order by stream_ordering desc limit 2",
    )
    execute(
        dsn,
        f"update current_state_events as current set event_id = '{earlier[0]}', event_stream_ordering = stream_ordering"
        f" from events where events.event_id = '{earlier[0]}' and current.room_id = '{room}' and current.{is_topic}",
    )
    execute(dsn, f"delete from state_groups_state where event_id = '{newest[0]}'")
