"""No state changes if a release that deletes state groups at once purges history during a compression."""

import itertools
import json
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sample.client import Client
from sample.homeserver import Synapse, homeserver
from sample.releases import REPRESENTATIVES, load_releases, release_python
from sample.traffic.moderation import purge_history
from synapse_lakehouse.cli import app
from tests.support.state_database import all_states, read_state
from tests.support.state_rooms import State

ROOMS = 4
ROUNDS = 6
STATES = 25
"""State events in a room before each purge."""


@pytest.mark.heavy
def test_purges_beside_a_compressor_change_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (release,) = (release for release in load_releases() if release.version == REPRESENTATIVES[0])
    with (
        release_python(release.version, release.released) as python,
        homeserver(tmp_path / "synapse", workers=False, python=python) as hs,
    ):
        monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("SYNAPSE_WRITE_DSN", hs.dsn)
        admin = hs.register("ada", admin=True)
        rooms = [admin.create_room(preset="private_chat") for _ in range(ROOMS)]
        users = [threading.Thread(target=change_and_purge, args=(admin, room)) for room in rooms]
        for user in users:
            user.start()
        states: dict[int, State] = {}
        rewritten, lengths = 0, itertools.cycle("37")
        while any(user.is_alive() for user in users):
            # With another length of chains, groups get other predecessors each time.
            options = ["--strategy", "best", "--max-chain", next(lengths), "--yes", "--format", "json"]
            result = CliRunner().invoke(app, ["compress", "apply", *options])
            assert result.exit_code == 0 or "no room" in result.output, result.output
            rewritten += sum(row["groups_rewritten"] for row in json.loads(result.stdout or "[]"))
            require_same(hs, states)
        for user in users:
            user.join()
        require_same(hs, states)
        remaining = all_states(hs.dsn)
        print(f"{len(states)} groups, {len(states.keys() - remaining.keys())} deleted, {rewritten} rewritten")
        assert rewritten > 50
        assert len(states.keys() - remaining.keys()) > ROOMS * STATES
        edges, _ = read_state(hs.dsn)
        # This release does not delete the edges of deleted groups.
        assert {prev for group, prev in edges.items() if group in remaining} <= remaining.keys()


def change_and_purge(admin: Client, room: str) -> None:
    for number in range(ROUNDS):
        events = [
            admin.set_state(room, "org.example.reading", {"value": (number, step)}, f"sensor{step % 7}")
            for step in range(STATES)
        ]
        # The groups of the other half remain, as deltas of deleted groups.
        purge_history(admin, room, events[STATES // 2])


def require_same(hs: Synapse, states: dict[int, State]) -> None:
    """Compare the states of all groups with those of an earlier time, and add new groups."""
    for group, state in all_states(hs.dsn).items():
        assert states.setdefault(group, state) == state
