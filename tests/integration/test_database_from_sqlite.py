"""A database that began as SQLite and went through synapse_port_db is copied, and no check has a finding."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sample.configuration import describe_database
from sample.environment import VERSION, synapse_python
from sample.homeserver import SERVER_NAME, homeserver
from sample.settle import settle
from sample.traffic import accounts, forks, messages, moderation, populate, rooms, visibility
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres
from tests.support.scenes import Scene, move, play
from tests.support.whole_runs import compare_with_source, list_faults, run

pytestmark = pytest.mark.heavy

BEFORE: tuple[Scene, ...] = (
    visibility.all_visibilities, messages.redactions, accounts.devices, accounts.receipts, rooms.long_state_chain,
    accounts.account_data,
)  # fmt: skip
AFTER: tuple[Scene, ...] = (messages.relations, forks.forks, moderation.purged_history, accounts.profiles, rooms.spaces)


def test_a_ported_database_is_copied(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    folder = tmp_path / "synapse"
    sqlite = f"sqlite:{folder / 'homeserver.db'}"
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        with homeserver(folder, dsn=sqlite, workers=False) as hs:
            stage = populate(hs)
            play(stage, BEFORE, VERSION)
        server.create_database("ported")
        dsn = server.dsn("ported")
        port(folder, dsn)
        lake = new_lake(
            synapse_dsn=dsn, synapse_server_name=SERVER_NAME, synapse_config=(folder / "homeserver.yaml").resolve()
        )
        with homeserver(folder, dsn=dsn, workers=False) as hs:
            settle(dsn)
            run(lake)
            play(move(stage, hs), AFTER, VERSION)
            settle(dsn)
        run(lake)
        assert compare_with_source(lake) == {}
    # Synapse itself may miscount the state of a room while it fills its statistics for the first time.
    assert [fault for fault in list_faults(lake) if "room_statistics" not in str(fault)] == []


def port(folder: Path, dsn: str) -> None:
    """Complete the background updates of the SQLite database, which synapse_port_db requires, and port it."""
    config = folder / "homeserver.yaml"
    ported = folder / "ported.yaml"
    ported.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"database": describe_database(dsn)}))
    programs, database = synapse_python().parent, folder / "homeserver.db"
    commands: list[list[str | Path]] = [
        [programs / "update_synapse_database", "--database-config", config, "--run-background-updates"],
        [programs / "synapse_port_db", "--sqlite-database", database, "--postgres-config", ported],
    ]
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
