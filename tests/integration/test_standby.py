"""A streaming standby as the source is copied like a primary; a cancelled copy starts again."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.tables import get_arrow_schema
from synapse_lakehouse.ingest.check_indexes import scan_source
from synapse_lakehouse.ingest.index_progress import IndexProgress
from synapse_lakehouse.local.postgres import embedded_postgres, sample
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.connection import build_conninfo, connect
from synapse_lakehouse.postgres.errors import RecoveryConflictError, SeveralServersError, SourceError
from synapse_lakehouse.postgres.indexes.btree_index import read_indexes
from synapse_lakehouse.postgres.indexes.heap_comparison import compare_with_heap
from synapse_lakehouse.postgres.relation_sizes import read_relation_sizes
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, copy_chunks
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows, count_rows
from synapse_lakehouse.postgres.rows.select_sql import build_select
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot, import_snapshot
from synapse_lakehouse.postgres.snapshot.standby_replay import wait_for_replay
from synapse_lakehouse.streams.checks import synapse_startup
from synapse_lakehouse.streams.checks.sequences import check_regression
from tests.conftest import BIN, environment
from tests.support import whole_runs
from tests.support.dataframe_compare import compare_with_source

STANDBY_OPTIONS = ["max_standby_streaming_delay=0", "hot_standby_feedback=off"]


class Pair(NamedTuple):
    primary: str
    standby: str


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """Yield a primary with the sample, and a standby that delays replay for no reader."""
    folder = tmp_path_factory.mktemp("replication")
    with embedded_postgres.run_server(folder / "primary") as primary:
        sample.restore_sample(primary)
        data = folder / "standby"
        primary.tool(
            "pg_basebackup", "--pgdata", str(data), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"
        )
        (folder / "standby.password").write_text(primary.password)
        with embedded_postgres.run_server(data, options=STANDBY_OPTIONS) as standby:
            yield primary, standby


@pytest.fixture
def pair(servers: tuple[EmbeddedServer, EmbeddedServer]) -> Pair:
    primary, standby = servers
    return Pair(primary.dsn(sample.SAMPLE_DATABASE), standby.dsn(sample.SAMPLE_DATABASE))


def test_relations_of_a_standby_are_measured(settings: Settings, pair: Pair) -> None:
    primary_sizes, standby_sizes = (
        {size.name: size for size in read_relation_sizes(settings.model_copy(update={"synapse_dsn": dsn}))}
        for dsn in (pair.primary, pair.standby)
    )
    assert standby_sizes.keys() == primary_sizes.keys()
    # A standby has free space maps of its own.
    assert all(size.bytes is not None for size in standby_sizes.values())
    assert standby_sizes["events"].index_bytes == primary_sizes["events"].index_bytes
    assert standby_sizes["events"].transaction_id_age
    assert {size.dead_rows for size in standby_sizes.values()} == {None}


def test_a_standby_is_checked_and_read_like_a_primary(settings: Settings, pair: Pair, tmp_path: Path) -> None:
    source = settings.model_copy(update={"synapse_dsn": pair.standby})
    declared = catalogue.load_catalogue()
    with export_snapshot(source, declared) as (connection, snapshot):
        assert snapshot.in_recovery
        for table in declared.copied_tables():
            chunk = _chunk(source, table, snapshot.name, tmp_path)
            assert (
                copy_chunks([chunk])[0].rows
                == count_rows(connection, table)
                == count_changed_rows(connection, table, 3).rows
            )


def test_indexes_of_a_standby_are_compared(settings: Settings, pair: Pair) -> None:
    source, declared = settings.model_copy(update={"synapse_dsn": pair.standby}), catalogue.load_catalogue()
    with export_snapshot(source, declared) as (connection, snapshot):
        assert snapshot.in_recovery
        units = [
            IndexProgress(connection, index, declared.table(table))
            for table in ("event_json", "event_to_state_groups", "state_groups_state")
            for index in read_indexes(connection, declared.table(table)).checkable
        ]
        assert scan_source(units, 600) == units
        for unit in units:
            assert sum(part.digest.rows for part in unit.ranges) == count_rows(connection, unit.table)
            assert not any(part.error or part.digest.not_own for part in unit.ranges)
    with connect(source) as connection:
        for unit in units:
            comparison = compare_with_heap(connection, unit.index)
            assert (comparison.not_checked, comparison.faults) == ("", [])
            assert comparison.entries == comparison.rows > 0


def test_a_standby_s_sequence_is_no_regression(settings: Settings, pair: Pair) -> None:
    declared = catalogue.load_catalogue()
    _remove_row_versions(pair)
    with psycopg.connect(pair.primary, autocommit=True) as primary:
        primary.execute("select nextval('receipts_sequence')")
    _remove_row_versions(pair)
    with psycopg.connect(pair.standby) as standby, psycopg.connect(pair.primary) as primary:
        then, now = (synapse_startup.read_progress(item, declared)["receipts"] for item in (standby, primary))
    assert then.last_allocated_id > now.last_allocated_id
    assert check_regression(declared.stream("receipts"), then, now) is None


def test_a_standby_returns_changes_since_its_snapshot(settings: Settings, pair: Pair) -> None:
    source, table = (
        settings.model_copy(update={"synapse_dsn": pair.standby}),
        catalogue.load_catalogue().table("presence_stream"),
    )
    with export_snapshot(source, catalogue.load_catalogue()) as (connection, before):
        rows = count_rows(connection, table)
    _remove_row_versions(pair)
    with export_snapshot(source, catalogue.load_catalogue()) as (connection, after):
        assert after.wal_position.continues(before.wal_position)
        assert count_changed_rows(connection, table, before.xmin).changed == rows
        assert count_changed_rows(connection, table, after.xmin) == RowCounts(rows, 0, "{}")


def test_a_standby_replays_up_to_the_other_database_s_time(settings: Settings, pair: Pair) -> None:
    def wait_for(dsn: str, seconds: float) -> None:
        with connect(settings.model_copy(update={"synapse_dsn": dsn})) as connection:
            wait_for_replay(connection, datetime.now(UTC), "SYNAPSE_STATE_DSN", seconds)

    with psycopg.connect(pair.standby, autocommit=True) as standby:
        standby.execute("select pg_wal_replay_pause()")
        try:
            with psycopg.connect(pair.primary) as primary:
                primary.execute("update presence_stream set state = state")
            wait_for(pair.primary, 0)
            with pytest.raises(SourceError, match=r"SYNAPSE_STATE_DSN is a standby.*pg_get_wal_replay_pause_state"):
                wait_for(pair.standby, 3)
        finally:
            standby.execute("select pg_wal_replay_resume()")
    wait_for(pair.standby, 30)


def test_readers_connect_to_the_server_of_the_snapshot(settings: Settings, pair: Pair, tmp_path: Path) -> None:
    primary, standby = (conninfo_to_dict(dsn) for dsn in pair)
    both = {name: f"{primary[name]},{standby[name]}" for name in ("host", "port")}
    dsn = make_conninfo(pair.primary, **both, password=primary["password"], load_balance_hosts="random")
    source, table = settings.model_copy(update={"synapse_dsn": dsn}), catalogue.load_catalogue().table("users")
    ports = set[int]()
    for _ in range(8):
        with export_snapshot(source, catalogue.load_catalogue()) as (connection, snapshot):
            ports.add(connection.info.port)
            with import_snapshot(source, snapshot) as other:
                rows = count_rows(other, table)
            chunk = _chunk(source, table, snapshot.name, tmp_path)
            chunk_of_server = replace(chunk, conninfo=build_conninfo(source, server=snapshot.server))
            assert copy_chunks([chunk_of_server])[0].rows == rows
    assert len(ports) > 1


def test_a_snapshot_of_another_server_is_explained(settings: Settings, pair: Pair, tmp_path: Path) -> None:
    primary, standby = (settings.model_copy(update={"synapse_dsn": dsn}) for dsn in pair)
    table = catalogue.load_catalogue().table("users")
    with (
        pytest.raises(SeveralServersError, match="SYNAPSE_DSN"),
        export_snapshot(standby, catalogue.load_catalogue()) as (_, snapshot),
    ):
        copy_chunks([_chunk(primary, table, snapshot.name, tmp_path)])


@pytest.mark.parametrize("reading", ["in the session that keeps the snapshot", "in another that imported it"])
def test_a_cancelled_copy_differs_from_other_failures(
    settings: Settings, pair: Pair, tmp_path: Path, reading: str
) -> None:
    source, table = (
        settings.model_copy(update={"synapse_dsn": pair.standby}),
        catalogue.load_catalogue().table("presence_stream"),
    )

    def copy_until_cancelled() -> None:
        with export_snapshot(source, catalogue.load_catalogue()) as (connection, snapshot):
            chunk = _chunk(source, table, snapshot.name, tmp_path)
            _remove_row_versions(pair)
            for _ in range(100):
                count_rows(connection, table) if reading.endswith("keeps the snapshot") else copy_chunks([chunk])

    with pytest.raises(RecoveryConflictError, match="hot_standby_feedback"):
        copy_until_cancelled()
    with pytest.raises(ZeroDivisionError), export_snapshot(source, catalogue.load_catalogue()):
        raise ZeroDivisionError


@pytest.mark.heavy
def test_a_cancelled_run_on_a_standby_starts_again(new_lake: Callable[..., Settings], pair: Pair) -> None:
    settings = new_lake(synapse_dsn=pair.standby)
    run = subprocess.Popen(
        [BIN / "lakehouse", "run"], env=environment(settings), cwd=settings.lakehouse_home, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    stop = threading.Event()
    disturber = threading.Thread(target=_disturb_once, args=(pair, stop))
    disturber.start()
    try:
        printed, _ = run.communicate(timeout=1800)
    finally:
        stop.set()
        run.kill()
        disturber.join()
    log = max((settings.lakehouse_home / "logs").glob("run_*.log"), key=lambda path: path.stat().st_mtime).read_text()
    assert run.returncode == 0, printed
    assert "conflict with recovery" in log
    assert compare_with_source(settings) == {}
    with psycopg.connect(pair.primary, autocommit=True) as primary:
        primary.execute("update receipts_linearized set data = '{\"ts\": 1}' where stream_id % 50 = 1")
    _remove_row_versions(pair)
    whole_runs.run(settings)
    assert compare_with_source(settings) == {}


def _chunk(source: Settings, table: catalogue.Table, snapshot: str, folder: Path) -> ReadChunk:
    return ReadChunk(
        conninfo=build_conninfo(source),
        snapshot=snapshot,
        statement=build_select(table).as_string(),
        schema=pa.schema(get_arrow_schema(table)),
        unique_columns=(),
        folder=folder.as_uri(),
        io_properties={},
    )


def _remove_row_versions(pair: Pair) -> None:
    """Create and vacuum dead row versions on the primary, and wait until the standby has replayed the vacuum."""
    with psycopg.connect(pair.primary, autocommit=True) as primary, psycopg.connect(pair.standby) as standby:
        standby.autocommit = True
        primary.execute("update presence_stream set state = state")
        primary.execute("vacuum presence_stream")
        row = primary.execute("select pg_current_wal_insert_lsn()").fetchone()
        assert row is not None
        while standby.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone() != (True,):
            pass


def _disturb_once(pair: Pair, stop: threading.Event) -> None:
    """Remove row versions during a copy from the standby, until the copy is cancelled.

    The session that exports the snapshot is idle in a transaction with locks on all tables, and lasts longer than any
    copy. If a query before the copy is cancelled, this does no harm.
    """
    copying = (
        "select count(*) from pg_stat_activity as session"
        " where application_name = 'synapse-lakehouse' and state = 'idle in transaction' and backend_xmin is not null"
        " and (select count(*) from pg_locks where pg_locks.pid = session.pid and mode = 'AccessShareLock') > 50"
    )
    cancelled = "select confl_snapshot from pg_stat_database_conflicts where datname = current_database()"
    with psycopg.connect(pair.standby, autocommit=True) as standby:
        before = standby.execute(cancelled).fetchone()
        while not stop.wait(0.01) and standby.execute(cancelled).fetchone() == before:
            row = standby.execute(copying).fetchone()
            if row and row[0]:
                _remove_row_versions(pair)
