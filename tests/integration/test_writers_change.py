"""No alert is raised if writers of a busy homeserver idle, restart, are renamed or are added."""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sample.client import ADMIN, q
from sample.homeserver import Synapse, homeserver
from sample.settle import settle
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.orchestration.stream_watch_tasks import preflight, watch_streams
from tests.conftest import lakehouse, use_settings

pytestmark = pytest.mark.heavy

PAUSE_SECONDS = 0.1
AUDIT_TABLES = ("audit.checks", "audit.incidents", "audit.stream_gaps", "audit.stream_positions")

PHASES = (
    ("as it began", ("persister1", "persister2")),
    ("restarted", ("persister1", "persister2")),
    ("renamed", ("persister1", "persister3")),
    ("one more", ("persister1", "persister3", "persister4")),
)


class Talk:
    """Users that send messages, and transactions that are rolled back."""

    def __init__(self, hs: Synapse, phase: int, writers: Collection[str]) -> None:
        self._hs = hs
        self.admin = hs.register(f"admin{phase}", admin=True)
        self._rooms = [self._room() for _ in range(4)]
        self.event_ids: list[str] = []
        # A room's ID is random and determines the writer.
        with psycopg.connect(hs.dsn, autocommit=True) as database:
            while set(writers) - {name for (name,) in database.execute("select distinct instance_name from events")}:
                self._room()

    def _room(self) -> str:
        return self.admin.create_room(preset="public_chat")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send messages until the context ends."""
        stop = threading.Event()
        thread = threading.Thread(target=self._send_messages, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def purge(self) -> None:
        """Purge the first room, except its last messages."""
        path = f"{ADMIN}/v1/purge_history/{q(self._rooms[0])}/{q(self.event_ids[-1])}"
        assert self.admin.call("POST", path, {"delete_local_events": True})["purge_id"]

    def _send_messages(self, stop: threading.Event) -> None:
        with psycopg.connect(self._hs.dsn, autocommit=True) as database:
            # One room is silent, so that its writer may be idle too.
            while not stop.wait(PAUSE_SECONDS):
                for room in self._rooms[:3]:
                    event = self.admin.say(room, "and another thing")
                    if room == self._rooms[0]:
                        self.event_ids.append(event)
                    self.admin.receipt(room, event)
                with database.transaction(force_rollback=True):
                    database.execute("select nextval('events_stream_seq'), nextval('receipts_sequence')")


def test_normal_changes_of_writers_raise_no_alert(
    new_lake: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded_postgres.run_server(tmp_path / "postgres", options=["fsync=off", "synchronous_commit=off"]) as server:
        server.create_database("synapse")
        dsn, folder = server.dsn("synapse"), tmp_path / "synapse"
        lake = new_lake(
            synapse_dsn=dsn, synapse_server_name="synapse.example", synapse_config=folder / "homeserver.yaml"
        )
        use_settings(lake, monkeypatch)
        for phase, (name, persisters) in enumerate(PHASES):
            with homeserver(folder, dsn=dsn, event_persisters=persisters) as hs:
                talk = Talk(hs, phase, persisters)
                with talk.running():
                    _run(lake, f"{name}, at work")
                    watch_streams()
                talk.purge()
                settle(dsn)
                _run(lake, f"{name}, at rest")
                watch_streams()
                preflight()
            assert _query(lake, "select kind, subject, description from audit.incidents where begins") == [], name
    writers = _query(lake, "select unnest(map_keys(writers)) from audit.stream_positions where stream = 'events'")
    assert {name for (name,) in writers} == {"persister1", "persister2", "persister3", "persister4"}


def _run(lake: Settings, phase: str) -> None:
    result = lakehouse(lake, "run")
    assert result.returncode == 0, phase + result.stdout + result.stderr
    wrong = "select distinct run_id, stage, expectation, subject, observed from audit.checks where not success"
    assert _query(lake, wrong) == [], phase
    gaps = _query(lake, "select stream, class, count(*) from audit.stream_gaps group by all order by all")
    print(phase, gaps)
    assert {kind for _, kind, _ in gaps} <= {"in_flight", "rolled_back", "purged"}, phase


def _query(lake: Settings, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the audit tables."""
    with duckdb_reader.open_duckdb(lake) as connection:
        duckdb_reader.create_views(connection, lake, None, AUDIT_TABLES)
        return connection.execute(sql).fetchall()
