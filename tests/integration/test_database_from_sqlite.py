"""A database that began as SQLite is copied after its move to PostgreSQL, and no check has a finding."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import yaml

from sample.configuration import describe_database
from sample.environment import VERSION, synapse_python
from sample.homeserver import SERVER_NAME, homeserver
from sample.settle import settle
from sample.traffic import accounts, forks, messages, moderation, populate, rooms, visibility
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres
from tests.support.dataframe_compare import compare_with_source
from tests.support.scenes import Scene, move, play
from tests.support.whole_runs import list_faults, run

pytestmark = pytest.mark.heavy

BEFORE: tuple[Scene, ...] = (
    visibility.all_visibilities, messages.redactions, accounts.devices, accounts.receipts, rooms.long_state_chain,
    accounts.account_data,
)  # fmt: skip
AFTER: tuple[Scene, ...] = (messages.relations, forks.forks, moderation.purged_history, accounts.profiles, rooms.spaces)


SEQUENCES = {
    "account_data_sequence": {"room_account_data": "stream_id", "account_data": "stream_id"},
    "device_inbox_sequence": {"device_inbox": "stream_id"},
    "device_lists_sequence": {"device_lists_stream": "stream_id", "device_lists_changes_in_room": "stream_id"},
    "e2e_cross_signing_keys_sequence": {"e2e_cross_signing_keys": "stream_id"},
    "event_auth_chain_id": {"event_auth_chains": "chain_id"},
    "events_stream_seq": {"events": "stream_ordering"},
    "presence_stream_sequence": {"presence_stream": "stream_id"},
    "profile_updates_sequence": {"profile_updates": "stream_id"},
    "push_rules_stream_sequence": {"push_rules_stream": "stream_id"},
    "pushers_sequence": {"pushers": "id"},
    "receipts_sequence": {"receipts_linearized": "stream_id"},
    "state_group_id_seq": {"state_groups": "id"},
}
"""Columns with the IDs of sequences that no column owns. pgloader does not set these sequences."""
LOAD = """
load database from sqlite://{sqlite} into {postgres}
with data only, truncate, disable triggers, reset sequences, workers = 2, concurrency = 1
excluding table names like 'sqlite%', '%schema%', 'background_updates', '%search%', 'users_%_rooms', 'ui_auth%',
  'worker_%', 'user_directory%';
"""


@pytest.mark.parametrize("transfer", ["synapse_port_db", "pgloader"])
def test_a_transferred_database_is_copied(new_lake: Callable[..., Settings], tmp_path: Path, transfer: str) -> None:
    folder = tmp_path / "synapse"
    sqlite = f"sqlite:{folder / 'homeserver.db'}"
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        with homeserver(folder, dsn=sqlite, workers=False) as hs:
            stage = populate(hs)
            play(stage, BEFORE, VERSION)
        server.create_database("transferred")
        dsn = server.dsn("transferred")
        {"synapse_port_db": port, "pgloader": load}[transfer](folder, dsn)
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
    """Port the SQLite database."""
    config = folder / "homeserver.yaml"
    ported = folder / "ported.yaml"
    ported.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"database": describe_database(dsn)}))
    update(folder)
    program, database = synapse_python().parent / "synapse_port_db", folder / "homeserver.db"
    execute(folder, program, "--sqlite-database", database, "--postgres-config", ported)


def load(folder: Path, dsn: str) -> None:
    """Let Synapse create its schema, load the rows of the SQLite database, and set the sequences."""
    update(folder)
    with homeserver(folder, dsn=dsn, workers=False):
        pass
    script = folder / "load"
    script.write_text(LOAD.format(sqlite=folder / "homeserver.db", postgres=dsn))
    execute(folder, "pgloader", "--on-error-stop", script)
    with psycopg.connect(dsn) as owner:
        for sequence, columns in SEQUENCES.items():
            last_ids = ", ".join(f"(select max({column}) from {table})" for table, column in columns.items())
            owner.execute(f"select setval('{sequence}', greatest({last_ids}, 1))".encode())


def update(folder: Path) -> None:
    """Complete the background updates of the SQLite database, which both programs require."""
    program, config = synapse_python().parent / "update_synapse_database", folder / "homeserver.yaml"
    execute(folder, program, "--database-config", config, "--run-background-updates")


def execute(folder: Path, *command: str | Path) -> None:
    """Run a program in ``folder``."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
