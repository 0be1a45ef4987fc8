"""Load on Synapse's database is limited: few read-only connections, timeouts, no temporary files, quick stops."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local import child_processes
from synapse_lakehouse.postgres.connection import (
    APPLICATION_NAME,
    build_conninfo,
    build_session_settings,
    connect,
)
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.postgres.rows.key_buckets import count_rows_per_bucket, get_bucket_width
from synapse_lakehouse.postgres.rows.row_counts import count_changed_rows, count_rows, count_stream_ids
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from tests.support import runs
from tests.support.reader_role import reader_role

ROWS = 1_500_000
CANCEL_SECONDS = 5.0
SAMPLES_OF_AN_ENDING_SESSION = 15
"""PostgreSQL lists a session for some milliseconds after its client has closed it and opened the next one.

A run also opens a session for a moment every five seconds, to look for sessions that it blocks.
"""

GROW = f"""
insert into cache_invalidation_stream_by_instance (stream_id, instance_name, cache_func)
  select id, 'w' || id % 3, 'f' from generate_series(1000000, 1000000 + {ROWS // 5}) as id;
drop index state_groups_state_type_idx;
insert into state_groups_state
  select 9000000 + id / 100, '!room' || id % 50 || ':a', 'm.room.member', '@user' || id || ':a', '$' || md5(id::text)
  from generate_series(1, {ROWS}) as id;
"""
"""A table whose copy takes long, and a table that is counted, and too large for a sort in memory."""

CLIENT = "import os, psycopg; psycopg.connect(os.environ['CONNECTION']).execute('select pg_sleep(600)')"

SESSIONS = """
select pid, state, backend_type, query, wait_event from pg_stat_activity where datname = %s and application_name = %s
"""

Session = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def large_source(source_copy: str) -> Iterator[tuple[str, Session]]:
    """Yield the URI of a source with large tables, and a session that monitors it."""
    with psycopg.connect(source_copy, autocommit=True) as watcher:
        watcher.execute(GROW.encode())
        watcher.execute("vacuum analyze state_groups_state")
        yield source_copy, watcher


def test_counts_use_no_temporary_files_or_parallel_workers(
    settings: Settings, large_source: tuple[str, Session]
) -> None:
    dsn, watcher = large_source
    before = _temporary_files(watcher)
    declared = catalogue.load_catalogue()
    with export_snapshot(settings.model_copy(update={"synapse_dsn": dsn}), declared) as (connection, _):
        for name in ("cache_invalidation_stream_by_instance", "device_inbox"):
            table = declared.table(name)
            assert count_stream_ids(connection, table, next(iter(table.streams.values())))
        table = declared.table("state_groups_state")
        assert count_rows(connection, table) > ROWS
        assert count_changed_rows(connection, table, 3).rows > ROWS
        assert sum(count_rows_per_bucket(connection, table, get_bucket_width(table)).values()) > ROWS
        settings_in_force = dict(
            connection.execute(
                "select name, setting from pg_settings where name in ('transaction_isolation', 'transaction_read_only',"
                " 'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',"
                " 'max_parallel_workers_per_gather', 'application_name')"
            ).fetchall()
        )
    assert settings_in_force == {
        "transaction_isolation": "repeatable read",
        "transaction_read_only": "on",
        "statement_timeout": "3600000",
        "lock_timeout": "10000",
        "idle_in_transaction_session_timeout": "900000",
        "max_parallel_workers_per_gather": "0",
        "application_name": APPLICATION_NAME,
    }
    assert _temporary_files(watcher) == before


def test_a_session_without_its_options_is_refused(
    settings: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader_settings = settings.model_copy(update={"synapse_dsn": f"{source_copy}?client_encoding=LATIN1"})
    with connect(reader_settings) as connection:
        assert connection.execute("show client_encoding").fetchone() == ("UTF8",)
        assert connection.execute("show transaction_isolation").fetchone() == ("repeatable read",)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("delete from events")
    # The patch acts like a pooler that drops startup options.
    monkeypatch.setattr("synapse_lakehouse.postgres.connection.add_session_settings", lambda *_: source_copy)
    with pytest.raises(SourceError, match=r"lock_timeout, .*statement_timeout"), connect(reader_settings):
        pass


def test_settings_of_the_role_do_not_replace_the_options(
    settings: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reader_role(settings, source_copy) as role:
        reader_settings = settings.model_copy(update={"synapse_dsn": role.dsn})
        with connect(reader_settings) as connection:
            sources = dict(
                connection.execute(
                    "select name, source from pg_settings where name = any(%s)",
                    [list(build_session_settings(settings))],
                ).fetchall()
            )
        assert sources == dict.fromkeys(build_session_settings(settings), "client")
        monkeypatch.setattr("synapse_lakehouse.postgres.connection.add_session_settings", lambda *_: role.dsn)
        with pytest.raises(SourceError, match=r"lock_timeout, .*statement_timeout"), connect(reader_settings):
            pass


def test_a_statement_whose_client_was_killed_ends_soon(settings: Settings, source_copy: str) -> None:
    info = build_conninfo(settings.model_copy(update={"synapse_dsn": source_copy}))
    client = subprocess.Popen([sys.executable, "-c", CLIENT], env=os.environ | {"CONNECTION": info})
    with psycopg.connect(source_copy, autocommit=True) as watcher:
        try:
            assert _wait_until(lambda: any(state == "active" for _, state, *_ in _sessions(watcher)), 30)
        finally:
            client.kill()
            client.wait()
        assert _wait_until(lambda: not _sessions(watcher), CANCEL_SECONDS)


def test_a_run_limits_its_connections_and_stops_cleanly(
    new_lake: Callable[..., Settings], large_source: tuple[str, Session]
) -> None:
    dsn, watcher = large_source
    settings = new_lake(synapse_dsn=dsn)
    before = _temporary_files(watcher)
    other = runs.lease_of_another_run(settings)
    run = runs.start(settings)
    try:
        runs.read_until(run, "Run the first run holds the lake lease")
        assert not _sessions(watcher)
        other.release()
        samples: list[set[object]] = []
        copying_since = None
        deadline = time.monotonic() + 300
        while copying_since is None or time.monotonic() < copying_since + 2:
            assert time.monotonic() < deadline
            assert run.poll() is None, run.stdout and run.stdout.read()
            sessions = _sessions(watcher)
            samples.append({pid for pid, *_ in sessions})
            if copying_since is None and any(
                re.match("COPY .*state_groups_state", str(session[3])) for session in sessions
            ):
                copying_since = time.monotonic()
            time.sleep(0.02)
        assert runs.lease_holder(settings) not in {None, "the first run"}
        children = runs.children(run)
        os.kill(run.pid, signal.SIGINT)
        started_at = time.monotonic()
        assert _wait_until(lambda: not _sessions(watcher), CANCEL_SECONDS), _sessions(watcher)
        seconds = time.monotonic() - started_at
        run.wait(60)
    finally:
        run.kill()
        run.wait()
    lasting = [
        set.intersection(*window)
        for window in zip(*(samples[i:] for i in range(SAMPLES_OF_AN_ENDING_SESSION)), strict=False)
    ]
    assert 1 < max(map(len, lasting)) <= settings.lakehouse_source_connections
    assert seconds < CANCEL_SECONDS
    assert run.returncode == 130
    assert child_processes.list_session_members(children) == []
    assert runs.lease_holder(settings) is None
    assert _temporary_files(watcher) == before


def _sessions(watcher: Session) -> list[tuple[object, ...]]:
    return watcher.execute(SESSIONS, [watcher.info.dbname, APPLICATION_NAME]).fetchall()


def _temporary_files(watcher: Session) -> object:
    time.sleep(1.1)  # ended sessions report their statistics within this time
    row = watcher.execute("select temp_files from pg_stat_database where datname = current_database()").fetchone()
    assert row is not None
    return row[0]


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
