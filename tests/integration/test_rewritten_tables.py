"""A rewritten table looks empty to older PostgreSQL snapshots: no such snapshot is copied."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres import connection as connections
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import LockedTableError, SourceError
from synapse_lakehouse.postgres.rows.row_counts import count_rows
from synapse_lakehouse.postgres.snapshot import blocked_sessions, snapshot
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot, import_snapshot
from synapse_lakehouse.postgres.snapshot.table_locks import lock_tables
from tests.support.reader_role import reader_role

TABLE = catalogue.load_catalogue().table("receipts_linearized")
TRUNCATE = (
    f"create temp table kept on commit drop as table {TABLE.name}; truncate {TABLE.name};"
    f"insert into {TABLE.name} table kept"
)
REWRITE = f"alter table {TABLE.name} alter column stream_id type bigint using stream_id + 0"
WAITING = "select count(*) from pg_locks where relation = to_regclass(%s) and not granted"

Session = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def source(settings: Settings, source_copy: str) -> Settings:
    return settings.model_copy(update={"synapse_dsn": source_copy})


@pytest.fixture
def other(source_copy: str) -> Iterator[Session]:
    """Yield another session, with a short lock timeout."""
    with psycopg.connect(source_copy) as connection:
        connection.execute("set lock_timeout = '500ms'")
        connection.commit()
        yield connection


@pytest.mark.parametrize("statement", [TRUNCATE, REWRITE], ids=["truncate", "alter"])
def test_a_table_is_not_rewritten_during_a_snapshot(source: Settings, other: Session, statement: str) -> None:
    rows = _count_rows(other)
    with export_snapshot(source, catalogue.load_catalogue()) as (connection, _):
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(statement.encode())
        other.rollback()
        assert count_rows(connection, TABLE) == rows
        assert other.execute(f"update {TABLE.name} set data = data".encode()).rowcount == rows
        other.execute(f"create index on {TABLE.name} (data)".encode())
        other.commit()
        other.autocommit = True
        other.execute(f"vacuum analyze {TABLE.name}".encode())
        assert count_rows(connection, TABLE) == rows
    other.execute(statement.encode())


@pytest.mark.parametrize("statement", [TRUNCATE, REWRITE], ids=["truncate", "alter"])
def test_a_table_during_a_rewrite_is_read_in_full(
    source: Settings, source_copy: str, other: Session, statement: str
) -> None:
    rows = _count_rows(other)
    export_done, rewrite_done = threading.Event(), threading.Event()

    def count_in_exported_snapshot() -> int:
        with export_snapshot(source, catalogue.load_catalogue()) as (connection, _):
            export_done.set()
            rewrite_done.wait(60)
            return count_rows(connection, TABLE)

    def has_waiter() -> bool:
        row = watcher.execute(WAITING, [TABLE.name]).fetchone()
        return bool(row and row[0])

    with psycopg.connect(source_copy, autocommit=True) as watcher, ThreadPoolExecutor(1) as pool:
        other.execute(statement.encode())
        counting = pool.submit(count_in_exported_snapshot)
        assert _wait_until(lambda: export_done.is_set() or has_waiter())
        other.commit()
        rewrite_done.set()
        assert counting.result() == rows


def test_a_copy_ends_for_an_upgrade_that_alters_tables(
    settings: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another reader of the snapshot ends, too, and the upgrade gets its next lock. The role has few privileges."""
    monkeypatch.setattr(blocked_sessions, "_POLL_SECONDS", 0.5)

    def copy(source: Settings) -> None:
        with (
            export_snapshot(source, catalogue.load_catalogue()) as (connection, exported),
            import_snapshot(source, exported) as reader,
        ):
            assert count_rows(reader, TABLE)
            with psycopg.connect(source_copy) as synapse:
                for name in (TABLE.name, "redactions"):
                    synapse.execute(f"alter table {name} add column new text".encode())
            connection.execute("select 1")

    locked = pytest.raises(LockedTableError, match=f"waits to change {TABLE.name}, and Synapse waits")
    with reader_role(settings, source_copy) as role, locked as raised:
        copy(settings.model_copy(update={"synapse_dsn": role.dsn}))
    assert raised.value.needs_pause
    with psycopg.connect(source_copy) as connection:
        connection.execute(f"select {TABLE.name}.new, redactions.new from {TABLE.name}, redactions limit 1".encode())


def test_a_locked_table_is_reported(source: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {**connections.build_session_settings(source), "lock_timeout": "100ms"}
    monkeypatch.setattr(connections, "build_session_settings", lambda _: short)
    with psycopg.connect(source_copy) as synapse:
        synapse.execute(f"alter table {TABLE.name} add column new text".encode())
        with pytest.raises(LockedTableError), export_snapshot(source, catalogue.load_catalogue()):
            pass


def test_tables_rewritten_at_every_try_are_named(
    source: Settings, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _count_rows(other)
    calls = list[int]()

    def lock_too_late(connection: Connection, tables: Collection[str]) -> None:
        calls.append(1)
        other.execute(TRUNCATE.encode())
        other.commit()
        lock_tables(connection, tables)

    monkeypatch.setattr(snapshot, "lock_tables", lock_too_late)
    with pytest.raises(SourceError, match=rf"\b3\b.*{TABLE.name}"), export_snapshot(source, catalogue.load_catalogue()):
        pass
    assert len(calls) == 3
    monkeypatch.setattr(
        snapshot,
        "lock_tables",
        lambda *arguments: lock_too_late(*arguments) if len(calls) < 5 else lock_tables(*arguments),
    )
    with export_snapshot(source, catalogue.load_catalogue()) as (connection, _):
        assert count_rows(connection, TABLE) == rows
    assert len(calls) == 5


def _count_rows(session: Session) -> int:
    row = session.execute(f"select count(*) from {TABLE.name}".encode()).fetchone()
    session.commit()
    assert row
    assert isinstance(row[0], int)
    assert row[0] > 0
    return row[0]


def _wait_until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
