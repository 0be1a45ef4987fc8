"""Compression by levels leaves what Synapse's own compressor leaves: every edge, every row, all it saved."""

import itertools
import random
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sample.environment import python_with
from synapse_lakehouse.compression import tables
from synapse_lakehouse.compression.chunks import Progress, Step, compress_chunks
from synapse_lakehouse.compression.levels import parse_levels, saved_levels
from synapse_lakehouse.embedded.postgres import Server
from synapse_lakehouse.settings import PROJECT
from tests.state_rooms import KINDS, World, begin, grow, purge

VERSION = "0.1.2"
VENV = PROJECT / ".lakehouse" / "reference-compressor-venv"
RUN = """
from os import environ as given
from synapse_auto_compressor import compress_state_events_table
compress_state_events_table(given["DSN"], int(given["CHUNK"]), given["LEVELS"], int(given["CHUNKS"]))
"""
SCHEMA = """
CREATE TABLE state_groups (id bigint PRIMARY KEY, room_id text NOT NULL, event_id text NOT NULL);
CREATE TABLE state_group_edges (state_group bigint NOT NULL, prev_state_group bigint NOT NULL);
CREATE UNIQUE INDEX ON state_group_edges (state_group, prev_state_group);
CREATE INDEX ON state_group_edges (prev_state_group);
CREATE TABLE state_groups_state (
    state_group bigint NOT NULL, room_id text NOT NULL, type text NOT NULL, state_key text NOT NULL,
    event_id text NOT NULL
);
CREATE INDEX ON state_groups_state (state_group, type, state_key);
CREATE INDEX ON state_groups (room_id);
"""


@pytest.fixture(scope="session")
def reference() -> Path:
    """Python with the reference installed."""
    return python_with("synapse-auto-compressor", VERSION, VENV)


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """An empty database with Synapse's tables of state."""
    name = f"compression_{uuid.uuid4().hex[:8]}"
    server.create_database(name)
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        connection.execute(SCHEMA)
    yield server.dsn(name)
    server.tool("dropdb", "--force", name)


def store(world: World, dsn: str) -> None:
    """Bring what is new in the world into the database, and take out what was purged."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        there = {one for (one,) in cursor.execute("SELECT id FROM state_groups")}
        new = [group for group in world.groups if group not in there]
        gone = list(there - world.groups.keys())
        cursor.execute("DELETE FROM state_groups WHERE id = ANY(%s)", [gone])
        cursor.execute("DELETE FROM state_group_edges WHERE state_group = ANY(%s)", [gone])
        gone = [group for group in gone if group not in world.rows]
        cursor.execute("DELETE FROM state_groups_state WHERE state_group = ANY(%s)", [gone])
        with cursor.copy("COPY state_groups FROM STDIN") as copy:
            for group in new:
                copy.write_row((group, world.groups[group], "$any"))
        with cursor.copy("COPY state_group_edges FROM STDIN") as copy:
            for group in new:
                if group in world.edges:
                    copy.write_row((group, world.edges[group]))
        with cursor.copy("COPY state_groups_state FROM STDIN") as copy:
            for group in new:
                for (kind, state_key), event in world.rows[group].items():
                    copy.write_row((group, world.groups[group], kind, state_key, event))


def fetched(dsn: str, columns: str, table: str) -> pa.Table:
    """A table of the database, in its order."""
    with psycopg.connect(dsn) as connection:
        cursor = connection.execute(f"SELECT {columns} FROM {table} ORDER BY {columns}")
        names = columns.split(", ")
        kinds = [
            pa.int64() if name.endswith(("id", "group")) and name not in ("room_id", "event_id") else pa.string()
            for name in names
        ]
        rows = cursor.fetchall()
    values = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table([pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)], names)


def state_tables(dsn: str) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The three tables as arrays."""
    return (
        fetched(dsn, "id, room_id", "state_groups"),
        fetched(dsn, "state_group, prev_state_group", "state_group_edges"),
        fetched(dsn, "state_group, type, state_key, event_id", "state_groups_state"),
    )


def progress(dsn: str) -> tuple[dict[str, Progress], int]:
    """What the reference saved: progress by room, and the oldest group that was left."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass('state_compressor_state')").fetchone() == (None,):
            return {}, 0
        saved = connection.execute(
            "SELECT room_id, last_compressed, level_num, max_size, current_length, current_head"
            " FROM state_compressor_state JOIN state_compressor_progress USING (room_id) ORDER BY room_id, level_num"
        ).fetchall()
        total = connection.execute("SELECT lowest_uncompressed_group FROM state_compressor_total_progress").fetchone()
        assert total
    rooms = {}
    for room, rows in itertools.groupby(saved, lambda row: row[0]):
        levels = list(rows)
        rooms[room] = Progress(levels[0][1], saved_levels(level[2:] for level in levels))
    return rooms, total[0]


def run_reference(python: Path, dsn: str, chunk_size: int, levels: str, chunks: int) -> None:
    """One run of the reference."""
    environment = {"DSN": dsn, "CHUNK": str(chunk_size), "LEVELS": levels, "CHUNKS": str(chunks)}
    done = subprocess.run([python, "-c", RUN], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def compare(python: Path, dsn: str, chunk_size: int, levels: str, chunks: int) -> list[Step]:
    """Run both from what the database holds; what they leave is the same."""
    stored, names = tables.encoded(*state_tables(dsn))
    before, oldest = progress(dsn)
    rooms = names.rooms.to_pylist()
    known = {rooms.index(room): one for room, one in before.items() if room in rooms}
    steps = list(itertools.islice(compress_chunks(stored, parse_levels(levels), chunk_size, known, oldest), chunks))
    run_reference(python, dsn, chunk_size, levels, chunks)
    _, edges, rows = state_tables(dsn)
    groups = stored.groups()
    # A purge may leave rows of groups that nothing mentions; nobody touches them.
    rows = rows.filter(pc.is_in(rows["state_group"], pa.array(groups.ids)))
    ours = tables.edges(groups)
    assert ours.sort_by([(name, "ascending") for name in ours.column_names]).equals(edges)
    ours = names.rows(groups).cast(rows.schema)
    assert ours.sort_by([(name, "ascending") for name in ours.column_names]).equals(rows)
    after, oldest = progress(dsn)
    assert after == before | {rooms[step.room]: step.progress for step in steps}
    assert not steps or oldest == steps[-1].first
    return steps


def several_runs(python: Path, dsn: str, seed: int, groups: int) -> list[Step]:
    """Let rooms grow, be purged and be compressed, with other settings each time."""
    world = World(random.Random(seed))
    rooms = begin(world, world.rng.sample(KINDS, world.rng.randint(3, len(KINDS))), groups)
    steps = []
    for _ in range(3):
        grow(world, rooms, len(rooms) * groups // 3)
        heads = {level.head for room in progress(dsn)[0].values() for level in room.levels if level.head is not None}
        purge(world, world.rng.choice([0, 0.03]), heads)
        store(world, dsn)
        levels = world.rng.choice(["100,50,25", "10,5", "3,3", "100", "7,2,2", "1,4"])
        chunk_size = world.rng.choice([7, 50, 500, 100_000])
        steps += compare(python, dsn, chunk_size, levels, world.rng.choice([3, 1000]))
    return steps


def test_three_runs_over_rooms_that_grow(reference: Path, database: str) -> None:
    several_runs(reference, database, 1, 120)


def test_rooms_whose_chains_were_full(reference: Path, database: str) -> None:
    world = World(random.Random(2))
    grow(world, begin(world, KINDS, 330), 2500)
    store(world, database)
    steps = compare(reference, database, 150, "100,50,25", 1000)
    assert any(step.is_skipped for step in steps)
    assert any(step.rows_after < step.rows_before for step in steps)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3, 63))
def test_many_rooms(reference: Path, database: str, seed: int) -> None:
    several_runs(reference, database, seed, random.Random(seed).choice([20, 150, 400]))
