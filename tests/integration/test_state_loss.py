"""Synapse deletes rows of other rooms because of a damaged index; a run finds this, and a plan restores the rows."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sample.homeserver import DATABASE, SERVER_NAME
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.embedded_postgres import BIN
from tests.conftest import lakehouse
from tests.support.incremental_lake import open_incremental_lake
from tests.support.integrity_runs import IntegrityRuns
from tests.support.state_loss import StateLoss, States, execute, read_states

Findings = dict[str, set[str]]
"""Rooms of the findings above info, by check."""


@pytest.mark.heavy
def test_rows_deleted_because_of_a_bad_index_are_restored(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    loss = StateLoss(tmp_path)
    with loss.postgres() as server:
        loss.live(server)
        config = tmp_path / "synapse" / "homeserver.yaml"
        dsn = server.dsn(DATABASE)
        source = {"synapse_dsn": dsn, "synapse_server_name": SERVER_NAME, "synapse_config": config}
        settings = new_lake(**source, lakehouse_index_check_seconds=600)
        with open_incremental_lake(settings):
            lake = IntegrityRuns(settings)
            assert findings_of_run(lake) == {}
            with loss.synapse(server):
                answers = loss.answers()
            states = read_states(dsn)
    loss.restore_old_index()
    with loss.postgres() as server, open_incremental_lake(settings):
        first, second = loss.rooms["purged"]
        with loss.synapse(server) as hs:
            loss.purge(hs, first)
        damaged_rooms = changed_rooms(dsn, states)
        assert damaged_rooms & set(loss.rooms["late"]), "rows of other rooms were deleted"
        findings = findings_of_run(lake)
        assert findings["state_group_changed"] == damaged_rooms
        assert findings["index_missing_entry"] >= set(loss.rooms["late"])
        assert findings["index_foreign_entry"]
        assert lakehouse(settings, "doctor", "--deep", "--indexes", "state_groups_state").returncode == 1

        with loss.synapse(server) as hs:
            loss.purge(hs, second)
            assert loss.answers() != answers
        damaged_rooms = changed_rooms(dsn, states)
        assert damaged_rooms & {first, second}, "the state of a purged room was stored with rows of other rooms"
        findings = findings_of_run(lake)
        assert findings["state_group_changed"] == damaged_rooms

        for room in findings["state_group_changed"]:
            restore(settings, room, tmp_path)
        # The bad index hid rows of the deleted state groups from Synapse.
        assert findings["stray_state_rows"] <= {first, second}
        execute(dsn, "delete from state_groups_state where state_group not in (select id from state_groups)")
        assert changed_rooms(dsn, states) == set()
        assert findings_of_run(lake) == {}
        with loss.synapse(server):
            assert loss.answers() == answers


def findings_of_run(lake: IntegrityRuns) -> Findings:
    """Add a release, and return its findings."""
    lake.advance()
    findings: Findings = {}
    for row in lake.damage():
        if row["table"] == "gold.state_integrity":
            findings.setdefault(row["check_name"], set()).add(row["room_id"])
    print(f"run {lake.runs}: {findings}", flush=True)
    return findings


def restore(settings: Settings, room: str, folder: Path) -> None:
    """Run the plan for a room as a superuser."""
    printed = lakehouse(settings, "state", "restore-plan", "--room", room, "--overwrite")
    assert printed.returncode == 0, printed.stderr
    print("\n".join(line for line in printed.stdout.splitlines() if line.startswith("--")), flush=True)
    file = folder / "plan.sql"
    file.write_text(printed.stdout)
    subprocess.run([BIN / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", file, str(settings.synapse_dsn)], check=True)


def changed_rooms(dsn: str, states: States) -> set[str]:
    """Return the rooms with an existing state group whose state differs from ``states``."""
    return {room for group, (room, state) in read_states(dsn).items() if states[group] != (room, state)}
