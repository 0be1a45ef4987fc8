"""The harness itself: a real Synapse with workers starts, forks a room, and leaves nothing behind."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psycopg
import pytest
import yaml

from sample.client import MatrixError
from sample.homeserver import Synapse, homeserver


class Interruption(Exception):
    """What a test that fails while the homeserver runs would raise."""


def test_homeserver_runs_with_workers_and_stops_on_failure(tmp_path: Path) -> None:
    pids: list[int] = []
    with pytest.raises(Interruption):
        _run_and_fail(tmp_path / "synapse", pids)
    assert len(pids) == 4
    assert not any(_runs(pid) for pid in pids)
    assert not (tmp_path / "synapse" / "postgres" / "postmaster.pid").exists()


def _run_and_fail(workdir: Path, pids: list[int]) -> None:
    with homeserver(workdir) as hs:
        pids += hs.processes.values()
        _use(hs)
        raise Interruption


def _use(hs: Synapse) -> None:
    """Send through every process at once and see what the database has of it."""
    alice, bob = hs.register("alice", admin=True), hs.register("bob")
    with pytest.raises(MatrixError, match="M_USER_IN_USE"):
        hs.register("alice")
    # Rooms are divided among the persisters by a hash of their id: with a dozen each gets some.
    for _ in range(12):
        room = alice.create_room(preset="public_chat")
    bob.join(room)
    with ThreadPoolExecutor(8) as racers:
        sends = [partial(user.say, room, "hello", via=process) for user in (alice, bob) for process in hs.urls]
        said = [each.result() for each in [racers.submit(send) for send in sends]]
    bob.receipt(room, said[-1])

    config = yaml.safe_load(hs.config_path.read_text())
    assert config["stream_writers"]["events"] == list(hs.event_persisters)
    with psycopg.connect(hs.dsn) as database:
        positions = database.execute("select stream_name, instance_name from stream_positions").fetchall()
        stored = database.execute("select count(*) from events where event_id = any(%s)", [said]).fetchone()
    assert {("events", writer) for writer in hs.event_persisters} <= set(positions)
    assert ("receipts", "worker1") in positions
    assert stored == (8,)
    assert all(_runs(pid) for pid in hs.processes.values())


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
