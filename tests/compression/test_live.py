"""No state changes while rooms are compressed, Synapse uses the rooms, and compressors are killed."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from sample.homeserver import homeserver
from synapse_lakehouse.cli import app
from synapse_lakehouse.compressor import undo_file
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.local.postgres import embedded_postgres
from tests.support.live_room_users import People
from tests.support.state_database import all_states, read_state, snapshot
from tests.support.state_rooms import resolve_state
from tests.support.state_traffic import Traffic, delete_room, traffic

SEED = int(os.environ.get("KILLS_SEED") or time.time())
KILLS = int(os.environ.get("KILLS") or 30)
ROOMS = 4


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", ["best", "levels"])
def test_no_state_changes_despite_kills_and_a_live_synapse(
    source_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    print(f"KILLS_SEED={SEED}")
    for name in ("SYNAPSE_DSN", "SYNAPSE_WRITE_DSN"):
        monkeypatch.setenv(name, source_copy)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
    rng = random.Random(SEED)
    *rooms, deleted_room = largest_rooms(source_copy)
    store_without_deltas(source_copy, [*rooms, deleted_room])
    options = ["--strategy", strategy, "--yes"]
    options += [argument for room in rooms for argument in ("--room", room)]
    # Synapse prevents messages to a room that is being deleted.
    with traffic(source_copy, rng, rooms) as live_traffic:
        delete_timer = threading.Timer(rng.uniform(3, 8), delete_room, [source_copy, deleted_room])
        delete_timer.start()
        for number in range(KILLS):
            has_deleted_room = delete_timer.is_alive()
            output = compress_and_kill(
                rng.uniform(0.3, 2.5), *options, *(["--room", deleted_room] if has_deleted_room else [])
            )
            assert "Error" not in output or "no room" in output, output
            print(
                f"kill {number + 1} {'after the end' if output else 'in time'}:",
                live_traffic.progress(),
                list_written_groups(source_copy),
            )
            require_same_states(source_copy, live_traffic)
        compress("apply", *options)
        delete_timer.join()
    require_same_states(source_copy, live_traffic)
    assert live_traffic.added > 10
    assert live_traffic.deleted > 0

    # Synapse is stopped. The next run compresses the rest, and the run after it changes nothing.
    live_traffic.finish()
    compress("apply", *options)
    require_same_states(source_copy, live_traffic)
    before = read_state(source_copy)
    compress("apply", *options)
    assert read_state(source_copy) == before
    with psycopg.connect(source_copy) as connection:
        rows = connection.execute("select room_id, strategy, chunk_end from lakehouse_compressor_progress").fetchall()
    assert set(rows) - {(deleted_room, strategy, None)} == {(room, strategy, None) for room in rooms}
    files = sorted(map(str, (tmp_path / "compression" / "undo").glob("*.parquet")))
    files = [file for file in files if undo_file.read(Path(file)).room_id != deleted_room]
    assert files
    compress("verify", "--strategy", strategy, *(argument for file in files for argument in ("--undo", file)))
    compress("undo", *files, "--yes")
    require_same_states(source_copy, live_traffic)


@pytest.mark.heavy
@pytest.mark.parametrize("strategy", ["best", "levels"])
def test_a_running_synapse_reports_the_same_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    print(f"KILLS_SEED={SEED}")
    rng = random.Random(SEED)
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        server.create_database("synapse")
        dsn, folder = server.dsn("synapse"), tmp_path / "synapse"
        for name in ("SYNAPSE_DSN", "SYNAPSE_WRITE_DSN"):
            monkeypatch.setenv(name, dsn)
        monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path))
        with homeserver(folder, dsn=dsn) as hs:
            people = People.moved_in(hs, rng)
        store_without_deltas(dsn, people.rooms)
        with homeserver(folder, dsn=dsn) as hs:
            people = people.at(hs)
            states = people.states()
            assert len(states) > 400
            options = ["--strategy", strategy, "--yes"]
            with people.talking():
                for number in range(KILLS):
                    if number == KILLS // 3:
                        people.purge()
                    if number == KILLS // 2:
                        people.delete(people.rooms[-1])
                    compress_and_kill(rng.uniform(0.1, 1.5), *options)
                compress("apply", *options)
            states |= people.states()
            assert len(people.said) > 50
        before = read_state(dsn)
        compress("apply", *options)
        assert sum(map(len, read_state(dsn)[1].values())) <= sum(map(len, before[1].values()))
        with homeserver(folder, dsn=dsn) as hs:
            # The restart clears Synapse's caches of states.
            states_after_restart = people.at(hs).states()
    missing = states.keys() - states_after_restart.keys()
    assert {event: states_after_restart[event] for event in states_after_restart.keys() & states.keys()} == {
        event: state for event, state in states.items() if event not in missing
    }
    assert 0 < len(missing) < len(states) / 2, "purged or deleted"
    assert [line for file in (folder / "logs").glob("*.log") for line in read_errors(file)] == []


def read_errors(file: Path) -> list[str]:
    """Return the errors in a log of Synapse, except those of commands to a Redis that stopped first."""
    lines = file.read_text().splitlines()
    return [line for line in lines if (" ERROR " in line or " CRITICAL " in line) and "'send-cmd'" not in line]


def compress(*arguments: str) -> None:
    """Run ``lakehouse compress`` in this process."""
    result = CliRunner().invoke(app, ["compress", *arguments])
    assert result.exit_code == 0, result.output


def largest_rooms(dsn: str) -> list[str]:
    """Return the rooms with the most groups."""
    with psycopg.connect(dsn) as connection:
        return [room for (room,) in connection.execute(
            "select room_id from state_groups group by 1 order by count(*) desc, 1 limit %s", [ROOMS]
        )]  # fmt: skip


def store_without_deltas(dsn: str, rooms: list[str]) -> None:
    """Store the rooms without deltas, so that many rows can be compressed."""
    states = all_states(dsn)
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        groups = cursor.execute("select id, room_id from state_groups where room_id = any(%s)", [rooms]).fetchall()
        ids = [group for group, _ in groups]
        cursor.execute("delete from state_group_edges where state_group = any(%s)", [ids])
        cursor.execute("delete from state_groups_state where state_group = any(%s)", [ids])
        with cursor.copy("copy state_groups_state from stdin") as copy:
            for group, room in groups:
                for key, event in states[group].items():
                    copy.write_row((group, room, *key, event))


def compress_and_kill(after_seconds: float, *arguments: str) -> str:
    """Run ``lakehouse compress apply`` in a process, kill it after some seconds, and return its output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.compression", "compress", "apply", *arguments], cwd=PROJECT_FOLDER,
        text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "begins\n"
    time.sleep(after_seconds)
    process.kill()
    return process.communicate()[0]


def list_written_groups(dsn: str) -> list[int]:
    """Return the last written group of each room."""
    with psycopg.connect(dsn) as connection:
        if connection.execute("select to_regclass('lakehouse_compressor_progress')").fetchone() == (None,):
            return []
        return [
            group
            for (group,) in connection.execute("select written_up_to from lakehouse_compressor_progress order by 1")
        ]


def require_same_states(dsn: str, live_traffic: Traffic) -> None:
    """Require that every group has its former state, and that deleted groups have no rows."""
    assert live_traffic.wrong == []
    groups, edges, rows = snapshot(dsn)
    for group in groups:
        # The traffic may not have recorded its newest group yet.
        assert group not in live_traffic.states or resolve_state(edges, rows, group) == live_traffic.states[group], (
            group
        )
    assert set(edges) <= groups
    assert set(rows) <= groups
