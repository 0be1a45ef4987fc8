"""What Synapse committed without waiting for its disk is in no snapshot before a crash could no longer undo it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.embedded import postgres, sample
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.snapshot import exported
from tests.advancing import advancing

NOT_WAITING = "set synchronous_commit = off"
SEEN = "select exists (select from blocked_rooms where room_id = %s), pg_current_wal_flush_lsn() >= %s::pg_lsn"
BLOCK = "insert into blocked_rooms values (%s, '@admin:it')"


def test_a_snapshot_is_not_ahead_of_the_sources_disk(settings: Settings, source_copy: str) -> None:
    source = settings.model_copy(update={"synapse_dsn": source_copy})
    with psycopg.connect(source_copy, autocommit=True) as writer:
        writer.execute(NOT_WAITING)
        for number in range(5):
            writer.execute(BLOCK, [f"!{number}:it"])
            (committed,) = writer.execute("select pg_current_wal_insert_lsn()").fetchone() or ()
            with exported(source, catalogue.load()) as (connection, _):
                assert connection.execute(SEEN, [f"!{number}:it", committed]).fetchone() == (True, True)


@pytest.mark.heavy
def test_what_a_crash_of_the_source_undid_hides_nothing_that_came_after(
    new_lake: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = catalogue.load()
    tables = tuple(few.table(name) for name in ("blocked_rooms", "rooms"))
    monkeypatch.setattr(catalogue, "load", lambda: few.model_copy(update={"tables": tables, "streams": ()}))
    options = ["wal_writer_delay=10s", "autovacuum=off"]
    with postgres.running(tmp_path / "source", options=options) as server:
        dsn = sample.restore(server)
        with advancing(new_lake(synapse_dsn=dsn)) as lake:
            lake.advance()
            with psycopg.connect(dsn, autocommit=True) as writer, _busy_disk(writer, seconds=5):
                writer.execute(NOT_WAITING)
                writer.execute(BLOCK, ["!undone:it"])
                lake.advance()
                os.kill(writer.info.backend_pid, signal.SIGKILL)
            _await_recovery(dsn)
            with psycopg.connect(dsn, autocommit=True) as writer:
                writer.execute(BLOCK, ["!after:it"])
            lake.advance()
            assert lake.departures() == {}


@contextmanager
def _busy_disk(session: psycopg.Connection[tuple[object, ...]], seconds: float) -> Iterator[None]:
    """For a while, what writes the log to the disk comes to nothing."""
    found = session.execute("select pid from pg_stat_activity where backend_type = 'walwriter'").fetchone()
    assert found is not None
    (writer,) = found
    os.kill(writer, signal.SIGSTOP)
    going_on = threading.Timer(seconds, os.kill, [writer, signal.SIGCONT])
    going_on.start()
    try:
        yield
    finally:
        going_on.cancel()
        os.kill(writer, signal.SIGCONT)


def _await_recovery(dsn: str) -> None:
    for _ in range(300):
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the server did not recover")
