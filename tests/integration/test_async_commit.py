"""A PostgreSQL snapshot becomes a baseline only when a crash of the source can no longer undo its content."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.postgres.snapshot import wal_flush
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from synapse_lakehouse.postgres.snapshot.timeline import read_wal_position
from tests.support.incremental_lake import open_incremental_lake

ASYNC_COMMIT = "set synchronous_commit = off"
IS_FLUSHED = "select exists (select from blocked_rooms where room_id = %s), pg_current_wal_flush_lsn() >= %s::pg_lsn"
BLOCK = "insert into blocked_rooms values (%s, '@admin:it')"
WALWRITER = "select pid from pg_stat_activity where backend_type = 'walwriter'"


def test_a_snapshot_contains_only_flushed_commits(settings: Settings, source_copy: str) -> None:
    source = settings.model_copy(update={"synapse_dsn": source_copy})
    with psycopg.connect(source_copy, autocommit=True) as writer:
        writer.execute(ASYNC_COMMIT)
        for number in range(5):
            writer.execute(BLOCK, [f"!{number}:it"])
            committed = read_wal_position(writer).wal_lsn
            with export_snapshot(source, catalogue.load_catalogue()) as (connection, snapshot):
                assert snapshot.is_durable
                assert connection.execute(IS_FLUSHED, [f"!{number}:it", committed]).fetchone() == (True, True)


def test_the_flush_wait_ends_at_a_page_header(
    settings: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_flush, "_MAX_SECONDS", 5.0)
    source = settings.model_copy(update={"synapse_dsn": source_copy})
    with psycopg.connect(source_copy, autocommit=True) as other:
        other.execute("select pg_switch_wal()")
    with export_snapshot(source, catalogue.load_catalogue()) as (_, snapshot):
        assert snapshot.is_durable


def test_open_transactions_are_not_waited_for(
    settings: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_flush, "_MAX_SECONDS", 5.0)
    source = settings.model_copy(update={"synapse_dsn": source_copy})
    with psycopg.connect(source_copy) as writer:
        writer.execute(BLOCK, ["!open:it"])
        with export_snapshot(source, catalogue.load_catalogue()) as (_, snapshot):
            assert snapshot.is_durable


@pytest.mark.heavy
@pytest.mark.parametrize(("most_seconds", "extents"), [(30.0, {"none", "changed"}), (0.1, {"full"})])
def test_rows_after_a_crash_of_the_source_are_copied(
    new_lake: Callable[..., Settings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_seconds: float,
    extents: set[str],
) -> None:
    declared = catalogue.load_catalogue()
    tables = tuple(declared.table(name) for name in ("blocked_rooms", "rooms"))
    monkeypatch.setattr(
        catalogue, "load_catalogue", lambda: declared.model_copy(update={"tables": tables, "streams": ()})
    )
    with embedded_postgres.run_server(tmp_path / "source", options=["autovacuum=off"]) as server:
        dsn = sample.restore_sample(server)
        with open_incremental_lake(new_lake(synapse_dsn=dsn)) as lake:
            lake.advance()
            monkeypatch.setattr(wal_flush, "_MAX_SECONDS", most_seconds)
            with psycopg.connect(dsn, autocommit=True) as writer, _stop_walwriter(writer, seconds=8) as walwriter:
                writer.execute(ASYNC_COMMIT)
                writer.execute(BLOCK, ["!undone:it"])
                lake.advance()
                os.kill(writer.info.backend_pid, signal.SIGKILL)
            _await_recovery(dsn, walwriter)
            with psycopg.connect(dsn, autocommit=True) as writer:
                writer.execute(BLOCK, ["!after:it"])
            ledger = lake.advance()
            assert lake.compare_with_source() == {}
            assert {row["extent"] for row in ledger.values()} == extents


@contextmanager
def _stop_walwriter(session: psycopg.Connection[tuple[object, ...]], seconds: float) -> Iterator[int]:
    """Stop the WAL writer for ``seconds``, and yield its process ID."""
    row = session.execute(WALWRITER).fetchone()
    assert row is not None
    (writer,) = row
    assert isinstance(writer, int)

    def resume() -> None:
        with suppress(ProcessLookupError):
            os.kill(writer, signal.SIGCONT)

    os.kill(writer, signal.SIGSTOP)
    timer = threading.Timer(seconds, resume)
    timer.start()
    try:
        yield writer
    finally:
        timer.cancel()
        resume()


def _await_recovery(dsn: str, walwriter: int) -> None:
    for _ in range(300):
        with suppress(psycopg.OperationalError), psycopg.connect(dsn) as connection:
            if connection.execute(WALWRITER).fetchone() not in (None, (walwriter,)):
                return
        time.sleep(0.1)
    pytest.fail("the server did not recover")
