"""The test's Synapse with workers starts, forks a room, and leaves no process behind."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest
import yaml

from sample.client import V3, MatrixError, q
from sample.homeserver import Synapse, homeserver
from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind, compute_incident_events
from synapse_lakehouse.alerts.message import build_messages
from synapse_lakehouse.alerts.sinks import MAX_SECONDS, load_sinks
from synapse_lakehouse.config.settings import Settings


class InterruptionError(Exception):
    """The error of a test that fails while the homeserver runs."""


def test_homeserver_runs_with_workers_and_stops_on_failure(tmp_path: Path) -> None:
    pids: list[int] = []
    with pytest.raises(InterruptionError):
        _run_and_fail(tmp_path / "synapse", pids)
    assert len(pids) == 4
    assert not any(_is_running(pid) for pid in pids)
    assert not (tmp_path / "synapse" / "postgres" / "postmaster.pid").exists()


def _run_and_fail(workdir: Path, pids: list[int]) -> None:
    with homeserver(workdir) as hs:
        pids += hs.processes.values()
        _use(hs)
        _receive_alert(hs)
        raise InterruptionError


def _use(hs: Synapse) -> None:
    """Send messages through every process at once, and check the rows in the database."""
    alice, bob = hs.register("alice", admin=True), hs.register("bob")
    with pytest.raises(MatrixError, match="M_USER_IN_USE"):
        hs.register("alice")
    # A hash of the room ID selects the event persister. With twelve rooms, each persister gets some of them.
    for _ in range(12):
        room = alice.create_room(preset="public_chat")
    bob.join(room)
    with ThreadPoolExecutor(8) as racers:
        # Equal events of the same millisecond would be one event.
        sends = [partial(user.say, room, f"to {process}", via=process) for user in (alice, bob) for process in hs.urls]
        event_ids = [future.result() for future in [racers.submit(send) for send in sends]]
    bob.receipt(room, event_ids[-1])

    config = yaml.safe_load(hs.config_path.read_text())
    assert config["stream_writers"]["events"] == list(hs.event_persisters)
    with psycopg.connect(hs.dsn) as database:
        positions = database.execute("select stream_name, instance_name from stream_positions").fetchall()
        stored = database.execute("select count(*) from events where event_id = any(%s)", [event_ids]).fetchone()
    assert {("events", writer) for writer in hs.event_persisters} <= set(positions)
    assert ("receipts", "worker1") in positions
    assert stored == (8,)
    assert all(_is_running(pid) for pid in hs.processes.values())


def _receive_alert(hs: Synapse) -> None:
    """Send an alert to a room of the homeserver, and check that it arrives."""
    alice = hs.register("oncall")
    room = alice.create_room(preset="private_chat")
    address = f"matrix://{alice.token}@{hs.url.removeprefix('http://')}/{room}?hsreq=no&discovery=no"
    settings = Settings(_env_file=None, synapse_server_name=hs.server_name, lakehouse_alert_urls=address)
    (begin,) = compute_incident_events(
        [], [AlertFinding(IncidentKind.LATE_IDS, "stream events", "2 ids came late")], "bronze", "", datetime.now(UTC)
    )
    (message,) = build_messages([begin], hs.server_name, settings.lakehouse_runbooks)
    (sink,) = load_sinks(settings)
    assert sink.send(message, MAX_SECONDS)
    messages = alice.call("GET", f"{V3}/rooms/{q(room)}/messages", params={"dir": "b", "limit": "5"})["chunk"]
    bodies = [item["content"]["body"] for item in messages if item["type"] == "m.room.message"]
    assert any("late ids: stream events" in body and "docs/runbooks/late-ids.md" in body for body in bodies), bodies


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
