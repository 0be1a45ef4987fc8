"""Runs on a healthy homeserver that federates, purges, compresses and restarts report no damage."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from sample.settle import settle
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import lakehouse
from tests.integration.federated_load import LOCAL, Load, federation
from tests.support.incremental_lake import open_incremental_lake
from tests.support.integrity_runs import IntegrityRuns
from tests.support.reference_compressor import run_reference

pytestmark = pytest.mark.heavy

SEED = int(os.environ.get("SOAK_SEED") or time.time())
RUNS = int(os.environ.get("SOAK_RUNS") or 20)
RUNS_PER_START = 4
PAUSE_SECONDS = 15.0
"""Pause between two acts of a thread: the runs need most of the machine."""

BACKDATE_DELETIONS = "update state_groups_pending_deletion set insertion_ts = insertion_ts - 3600000"
RENEW_DELETIONS = "update state_groups_pending_deletion set insertion_ts = 1000 * extract(epoch from now())"

DROP_PROGRESS = (
    "drop table if exists state_compressor_state, state_compressor_progress, state_compressor_total_progress"
)
"""The reference compressor panics if Synapse deleted a group that its progress names."""

REQUIRED_ACTIVITY = {
    "joins over partial state": "select count(*) from un_partial_stated_room_stream",
    "backfill": "select count(*) from events where stream_ordering < 0",
    # The names of Synapse's tasks (synapse.handlers.pagination).
    "purges of history": "select count(*) from scheduled_tasks where status = 'complete' and action = 'purge_history'",
    "deleted rooms": """
        select count(*) from scheduled_tasks
        where status = 'complete' and action in ('shutdown_and_purge_room', 'purge_room')""",
    "compression by the reference": "select count(*) from state_compressor_progress",
    "compression by lakehouse": "select count(*) from lakehouse_compressor_progress",
}


def test_a_healthy_homeserver_has_no_damage(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    print(f"SOAK_SEED={SEED} SOAK_RUNS={RUNS}")
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        dsn = server.dsn("here")
        settings = new_lake(
            synapse_dsn=dsn, synapse_server_name=LOCAL, synapse_config=tmp_path / "here" / "homeserver.yaml"
        )
        load, damage = None, []
        with open_incremental_lake(settings):
            lake = IntegrityRuns(settings)
            while lake.runs < RUNS:
                with run_homeservers(server, tmp_path, load) as load:
                    with load.running():
                        for _ in range(min(RUNS_PER_START, RUNS - lake.runs)):
                            lake.advance()
                            damage += [{"run": lake.runs} | row for row in lake.damage()]
                            print(f"run {lake.runs}: {len(damage)} rows of damage so far; done {load.done}", flush=True)
                            execute(dsn, BACKDATE_DELETIONS)
                            if lake.runs % 2:
                                compress(settings, dsn, "best" if lake.runs % 4 == 1 else "levels")
                    assert load.broken == []
                    execute(dsn, RENEW_DELETIONS)
                    execute(dsn, DROP_PROGRESS)
                    run_reference(dsn, 500, "100,50,25", 1000)
                    settle(dsn)
            lake.advance()
            damage += [{"run": lake.runs} | row for row in lake.damage()]
        assert damage == []
        with psycopg.connect(dsn) as connection:
            counts = {name: connection.execute(sql.encode()).fetchone() for name, sql in REQUIRED_ACTIVITY.items()}
        print(counts)
        assert (0,) not in counts.values()


@contextmanager
def run_homeservers(server: EmbeddedServer, folder: Path, load: Load | None) -> Iterator[Load]:
    """Run both homeservers; yield a new load, or ``load`` with its users."""
    with federation(server, folder) as (local, remote):
        if load:
            load.reconnect(local, remote)
        yield load or Load(local, remote, SEED, PAUSE_SECONDS)


def compress(settings: Settings, dsn: str, strategy: str) -> None:
    result = lakehouse(settings, "compress", "apply", "--yes", "--strategy", strategy, SYNAPSE_WRITE_DSN=dsn)
    print(result.stdout[-400:], result.stderr[-400:])
    assert result.returncode == 0


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())
