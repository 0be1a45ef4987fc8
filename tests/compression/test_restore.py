"""A faulty or interrupted compression is detected and restored."""

import random
from collections import deque
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from bench.compression.synthetic_rooms import STATE_TABLES
from synapse_lakehouse.cli.compression import compress_actions, outcome_log
from synapse_lakehouse.cli.compression.compress import INTERRUPTED
from synapse_lakehouse.compressor import compress_room
from synapse_lakehouse.compressor.algorithm.row_changes import RowChanges
from synapse_lakehouse.compressor.postgres import writer
from synapse_lakehouse.compressor.postgres.room_reader import RoomReader
from synapse_lakehouse.compressor.postgres.transaction import TransactionSize, rewrite_groups
from synapse_lakehouse.compressor.record_outcome import OutcomeRow
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError
from tests.compression.conftest import BEST, EVERY_ROOM, Compress, rows, undo_files
from tests.support.state_database import all_states, read_state, state_database, store
from tests.support.state_rooms import World, grow_chain


def damage_once(monkeypatch: pytest.MonkeyPatch, statement: str, index: int) -> None:
    """Make the first transaction that rewrites groups also run ``statement`` for the group at ``index``."""

    def rewrite_and_damage(connection: Connection, changes: RowChanges, start: int, end: int, *rest: Any) -> Any:
        skipped = rewrite_groups(connection, changes, start, end, *rest)
        connection.execute(statement.encode(), {"group": int(changes.ids[start:end][index])})
        monkeypatch.setattr(writer, "rewrite_groups", rewrite_groups)
        return skipped

    monkeypatch.setattr(writer, "rewrite_groups", rewrite_and_damage)


def test_a_room_with_a_changed_state_is_restored(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, _ = rooms
    before = read_state(dsn)
    damage_sql = (
        "update state_groups_state set event_id = '$wrong'"
        " where ctid = (select min(ctid) from state_groups_state where state_group = %(group)s)"
    )
    damage_once(monkeypatch, damage_sql, index=0)
    result = compress(dsn, "apply", *BEST, "--room", "!0:it's.example", "--yes")
    assert result.exit_code == 1
    assert "restored from" in result.stderr
    assert read_state(dsn) == before


def test_the_next_try_verifies_an_interrupted_one(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dsn, world = rooms

    def damage_and_stop(*arguments: Any) -> Any:
        if arguments[2]:
            raise KeyboardInterrupt
        skipped = rewrite_groups(*arguments)
        arguments[0].execute(
            "update state_groups_state set event_id = '$wrong' where state_group = %s", [int(arguments[1].ids[0])]
        )
        return skipped

    monkeypatch.setattr(
        compress_actions, "GroupWriter", partial(writer.GroupWriter, pace=TransactionSize(seconds=0, work=50))
    )
    monkeypatch.setattr(writer, "rewrite_groups", damage_and_stop)
    options = ("apply", *BEST, "--room", "!whole", "--yes")
    assert compress(dsn, *options).exit_code == INTERRUPTED
    monkeypatch.setattr(writer, "rewrite_groups", rewrite_groups)
    damaged_state = read_state(dsn)
    assert all_states(dsn) != world.states

    for _ in range(2):
        result = compress(dsn, *options)
        assert result.exit_code == 1
        assert "compression of !whole was interrupted" in result.stderr
        assert read_state(dsn) == damaged_state
    assert compress(dsn, "undo", *undo_files(tmp_path), "--repair", "--yes").exit_code == 0
    assert all_states(dsn) == world.states
    assert compress(dsn, *options).exit_code == 0
    assert all_states(dsn) == world.states


def restore(dsn: str, server: EmbeddedServer, former_world: World) -> World:
    """Replace the database by one in which the IDs of ``!whole`` belong to other groups; return its model."""
    name, first = (
        conninfo_to_dict(dsn)["dbname"],
        min(group for group, room in former_world.groups.items() if room == "!whole"),
    )
    world = World(random.Random(11), next_id=first)
    deque(grow_chain(world, "!whole", 250), maxlen=0)
    server.tool("dropdb", "--force", str(name))
    server.create_database(str(name))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(STATE_TABLES.encode())
    store(world, dsn)
    return world


def test_an_undo_file_of_a_restored_database_is_not_used(
    compress: Compress,
    rooms: tuple[str, World],
    server: EmbeddedServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    dsn, former_world = rooms
    options = ("apply", *BEST, "--room", "!whole", "--yes")

    def stop(*arguments: Any) -> Any:
        if arguments[2]:
            raise KeyboardInterrupt
        return rewrite_groups(*arguments)

    monkeypatch.setattr(
        compress_actions, "GroupWriter", partial(writer.GroupWriter, pace=TransactionSize(seconds=0, work=50))
    )
    monkeypatch.setattr(writer, "rewrite_groups", stop)
    assert compress(dsn, *options).exit_code == INTERRUPTED
    monkeypatch.setattr(writer, "rewrite_groups", rewrite_groups)
    world = restore(dsn, server, former_world)

    undo_result = compress(dsn, "undo", *undo_files(tmp_path), "--repair", "--yes")
    assert undo_result.exit_code == 1
    assert "restored or failed over since" in undo_result.stderr
    outcomes: list[OutcomeRow] = []
    with monkeypatch.context() as patch:
        patch.setattr(outcome_log, "open_compression_log", lambda *_: nullcontext(outcomes.append))
        apply_result = compress(dsn, *options)
    assert apply_result.exit_code == 1
    # Unlike a faulty room, it stops no further run.
    assert [row["outcome"] for row in outcomes] == ["stopped"]
    assert "Move these files away" in apply_result.stderr
    assert "--repair" not in apply_result.stderr
    assert all_states(dsn) == world.states
    for file in undo_files(tmp_path):
        Path(file).unlink()
    assert compress(dsn, *options).exit_code == 0
    assert all_states(dsn) == world.states


def test_a_resumed_run_reports_the_rows_of_both_tries(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, world = rooms
    rows_before = sum(len(rows) for group, rows in world.rows.items() if world.groups[group] == "!whole")
    options = ("apply", *BEST, "--room", "!whole", "--yes", "--format", "json")
    read_tables = RoomReader.read_tables

    def read_or_fail(*arguments: Any) -> Any:
        if is_written:
            raise ReadError(psycopg.OperationalError("the connection is lost"))
        return read_tables(*arguments)

    is_written = False
    write = writer.GroupWriter.write

    def write_and_mark(*arguments: Any) -> Any:
        nonlocal is_written
        skipped = write(*arguments)
        is_written = True
        return skipped

    monkeypatch.setattr(RoomReader, "read_tables", read_or_fail)
    monkeypatch.setattr(writer.GroupWriter, "write", write_and_mark)
    assert compress(dsn, *options).exit_code == 1
    monkeypatch.setattr(RoomReader, "read_tables", read_tables)
    monkeypatch.setattr(writer.GroupWriter, "write", write)
    (row,) = rows(compress(dsn, *options))
    assert row["rows_before"] == rows_before > row["rows_after"]
    assert row["groups_rewritten"] == 0


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_room_that_cannot_be_resolved_is_restored(
    compress: Compress, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_stopped: bool
) -> None:
    """Two concurrent compressors may cause this. ``is_stopped``: the command stops before it compares."""
    dsn, _ = rooms
    before = read_state(dsn)
    second_edge = (
        "insert into state_group_edges select %(group)s, min(id) from state_groups where room_id = '!whole'"
        " and id not in (select prev_state_group from state_group_edges where state_group = %(group)s)"
    )
    damage_once(monkeypatch, second_edge, index=-1)
    apply = ("apply", *BEST, "--room", "!whole", "--yes")
    if not is_stopped:
        result = compress(dsn, *apply)
        assert result.exit_code == 1
        assert "cannot be resolved any more" in result.stderr
        assert "restored from" in result.stderr
        assert read_state(dsn) == before
        assert compress(dsn, "verify", "--room", "!whole").exit_code == 0
        return
    with monkeypatch.context() as patch:
        patch.setattr(compress_room, "_describe_difference", interrupt)
        assert compress(dsn, *apply).exit_code == INTERRUPTED
    refused_undo = compress(dsn, "undo", *undo_files(tmp_path), "--yes")
    assert refused_undo.exit_code == 1
    assert "State groups of !whole cannot be resolved" in refused_undo.stderr
    assert "--repair" in refused_undo.stderr
    repair = compress(dsn, "undo", *undo_files(tmp_path), "--repair", "--yes")
    assert repair.exit_code == 0, repair.stderr
    assert read_state(dsn) == before
    assert compress(dsn, "verify", "--room", "!whole").exit_code == 0


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_deleted_room_stops_no_other_restore(compress: Compress, rooms: tuple[str, World], tmp_path: Path) -> None:
    dsn, _ = rooms
    before = read_state(dsn)
    rows(compress(dsn, "apply", *BEST, "--room", "!0:it's.example", "--yes", "--format", "json"))
    rows(compress(dsn, "apply", *BEST, "--room", "!whole", "--yes", "--format", "json"))
    with psycopg.connect(dsn) as connection:
        for table, column in (
            ("state_group_edges", "state_group"), ("state_groups_state", "state_group"), ("state_groups", "id"),
        ):  # fmt: skip
            connection.execute(
                f"delete from {table} where {column} in (select id from state_groups where room_id = '!whole')".encode()
            )
    result = compress(dsn, "undo", *undo_files(tmp_path), "--yes")
    assert result.exit_code == 1
    assert "!whole" in result.stderr
    assert "!0:it's.example" in result.stdout
    (edges, states), (edges_now, states_now) = before, read_state(dsn)
    assert edges | edges_now == edges
    assert states | states_now == states


def test_only_groups_in_an_undo_file_count_as_compared(
    compress: Compress, rooms: tuple[str, World], tmp_path: Path
) -> None:
    dsn, _ = rooms
    (applied_row,) = rows(compress(dsn, "apply", *BEST, "--room", "!whole", "--yes", "--format", "json"))
    arguments = ("--undo", *undo_files(tmp_path))
    verified_rows = rows(compress(dsn, "verify", "--room", "!whole", *arguments, "--format", "json"))
    assert [row["compared"] for row in verified_rows] == [applied_row["groups_rewritten"]]


@pytest.mark.parametrize("strategy", ["levels", "best"])
def test_an_interrupted_run_resumes_to_the_same_result(
    compress: Compress, server: EmbeddedServer, rooms: tuple[str, World], monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    dsn, world = rooms
    options = ("--strategy", strategy, "--levels", "9,4", "--chunk-size", "60", *EVERY_ROOM, "--yes")
    remaining = 0
    monkeypatch.setattr(
        compress_actions, "GroupWriter", partial(writer.GroupWriter, pace=TransactionSize(seconds=0, work=50))
    )

    def stop(*arguments: Any) -> Any:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            raise KeyboardInterrupt
        return rewrite_groups(*arguments)

    with state_database(server) as twin:
        store(world, twin)
        assert compress(twin, "apply", *options).exit_code == 0
        expected = read_state(twin)
    monkeypatch.setattr(writer, "rewrite_groups", stop)
    stops = 0
    while True:
        remaining = 5 + 8 * stops
        result = compress(dsn, "apply", *options)
        if result.exit_code == 0:
            break
        assert result.exit_code == INTERRUPTED, result.output
        assert "Stopped" in result.stderr
        assert all_states(dsn) == world.states
        stops += 1
    assert stops > 2
    if strategy == "levels":
        assert read_state(dsn) == expected
    else:
        assert sum(map(len, read_state(dsn)[1].values())) <= 1.02 * sum(map(len, expected[1].values()))
