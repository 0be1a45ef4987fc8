"""Databases of generated rooms, and a function that runs ``lakehouse compress`` on them."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from synapse_lakehouse.cli import app
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.state_database import state_database, store
from tests.support.state_rooms import KINDS, World, begin_rooms, grow_rooms

Compress = Callable[..., Result]

EVERY_ROOM = ("--number-of-rooms", "1000")
BEST = ("--strategy", "best")


@pytest.fixture
def compress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compress:
    """Return a function that runs ``lakehouse compress`` on a database in this process."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))

    def run(dsn: str, *arguments: str) -> Result:
        monkeypatch.setenv("SYNAPSE_DSN", dsn)
        monkeypatch.setenv("SYNAPSE_WRITE_DSN", dsn)
        return CliRunner().invoke(app, ["compress", *arguments])

    return run


@pytest.fixture
def rooms(server: EmbeddedServer) -> Iterator[tuple[str, World]]:
    """Yield a database with rooms of every kind, and the model of the rooms."""
    world = World(random.Random(4))
    grow_rooms(world, begin_rooms(world, KINDS, 260), 1400)
    state = {("m.room.member", str(number)): world.event() for number in range(10)}
    for number in range(200):
        state = state | {("m.room.member", str(number % 10)): world.event()}
        world.add("!whole", state)
    with state_database(server) as dsn:
        with psycopg.connect(dsn) as connection:
            # Autovacuum could shorten the tables before a test reads their sizes.
            connection.execute("alter table state_groups_state set (autovacuum_enabled = false)")
            connection.execute("alter table state_group_edges set (autovacuum_enabled = false)")
        store(world, dsn)
        yield dsn, world


def rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows that a command printed as JSON."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def undo_files(settings_home: Path) -> list[str]:
    """Return the undo files in the order in which they were written."""
    return sorted(map(str, (settings_home / "compression" / "undo").glob("*.parquet")))
