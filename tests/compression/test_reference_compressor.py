"""The strategy `levels` writes the same edges, rows and progress as Synapse's own compressor."""

import random
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from synapse_lakehouse.cli import app
from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.support.reference_compressor import compare, progress, run_reference
from tests.support.state_database import read_state, state_database, store
from tests.support.state_rooms import KINDS, World, begin_rooms, grow_rooms, purge


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[str]:
    """Yield an empty database with Synapse's tables of state."""
    with state_database(server) as dsn:
        yield dsn


def compare_three_runs(dsn: str, seed: int, groups: int) -> list[ChunkResult]:
    """Grow, purge and compress rooms three times with different settings; return the compared chunks."""
    world = World(random.Random(seed))
    rooms = begin_rooms(world, world.rng.sample(KINDS, world.rng.randint(3, len(KINDS))), groups)
    steps = []
    for _ in range(3):
        grow_rooms(world, rooms, len(rooms) * groups // 3)
        heads = {level.head for room in progress(dsn)[0].values() for level in room.levels if level.head is not None}
        purge(world, world.rng.choice([0, 0.03]), heads)
        store(world, dsn)
        levels = world.rng.choice(["100,50,25", "10,5", "3,3", "100", "7,2,2", "1,4"])
        chunk_size = world.rng.choice([7, 50, 500, 100_000])
        steps += compare(dsn, chunk_size, levels, world.rng.choice([3, 1000]))
    return steps


def test_the_command_equals_the_reference_compressor(
    server: EmbeddedServer, database: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both run in turns, and each resumes from the progress of the other."""
    monkeypatch.setenv("LAKEHOUSE_HOME", str(settings.lakehouse_home))
    world = World(random.Random(7))
    rooms = begin_rooms(world, KINDS, 120)
    options = ["--levels", "7,3,2", "--chunk-size", "20", "--number-of-rooms", "1000", "--yes"]
    with state_database(server) as twin:
        for turn in range(3):
            grow_rooms(world, rooms, 150)
            heads = {level.head for room in progress(twin)[0].values() for level in room.levels if level.head}
            purge(world, 0.03 * (turn > 0), heads)
            for dsn in (database, twin):
                store(world, dsn)
            run_reference(twin, 20, "7,3,2", 1000)
            if turn == 1:
                run_reference(database, 20, "7,3,2", 1000)
            else:
                monkeypatch.setenv("SYNAPSE_WRITE_DSN", database)
                result = CliRunner().invoke(app, ["compress", "apply", *options])
                assert result.exit_code == 0, result.output
            assert read_state(database) == read_state(twin)
            assert progress(database)[0] == progress(twin)[0]


def test_three_runs_over_rooms_that_grow(database: str) -> None:
    compare_three_runs(database, 1, 120)


def test_rooms_whose_chains_were_full(database: str) -> None:
    world = World(random.Random(2))
    grow_rooms(world, begin_rooms(world, KINDS, 330), 2500)
    store(world, database)
    steps = compare(database, 150, "100,50,25", 1000)
    assert any(step.is_skipped for step in steps)
    assert any(step.rows_after < step.rows_before for step in steps)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3, 63))
def test_many_rooms(database: str, seed: int) -> None:
    compare_three_runs(database, seed, random.Random(seed).choice([20, 150, 400]))
