"""After each incremental run, the lake equals the changed source."""

import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest import copy_tables
from synapse_lakehouse.ingest.count_tables import count_tables
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from tests.conftest import copied_source
from tests.support.incremental_lake import IncrementalLake, Source, open_lake_of_tables
from tests.support.random_row_changes import run_random_history

# Without schema_version a database is not accepted as Synapse's.
ALL_TABLES = [table.name for table in catalogue.load_catalogue().copied_tables() if table.name != "schema_version"]
VARIED_TABLES = [
    "events", "event_json", "event_auth", "event_edges", "event_to_state_groups", "room_memberships", "rejections",
    "state_groups", "state_groups_state", "rooms", "blocked_rooms", "erased_users", "presence_stream",
    "receipts_linearized", "account_data", "scheduled_tasks", "stream_positions",
]  # fmt: skip
"""Large and small tables of every load mode; with enforced, unenforced and NULL keys; with projections."""


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, source_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IncrementalLake]:
    with open_lake_of_tables(
        VARIED_TABLES, server, settings, source_dsn, tmp_path_factory.mktemp("increments")
    ) as lake:
        yield lake


def test_changed_rows_alone_are_read(lake: IncrementalLake, source: Source, source_dsn: str) -> None:
    first_ledger = lake.advance()
    assert {row["extent"] for row in first_ledger.values()} == {"none"}
    assert sum(row["rows_read"] for row in first_ledger.values()) == 0

    # Changes of a federating server: outliers change, events get other IDs, and state groups arrive late and change.
    source.execute("update events set outlier = not outlier where stream_ordering % 50 = 0")
    source.execute("update events set stream_ordering = -900000 - stream_ordering where stream_ordering % 70 = 3")
    source.execute("update event_json set json = '{}' where event_id in (select event_id from events limit 20)")
    source.execute("update event_to_state_groups set state_group = 2 where ctid < '(2,0)'")
    source.execute("update room_memberships set forgotten = 1 where ctid < '(1,0)'")
    source.execute("insert into rejections select event_id, 'why', 'now' from events limit 3")
    source.execute("delete from event_edges where event_id in (select event_id from events limit 30)")
    source.execute("truncate erased_users")
    ledger = lake.advance()
    assert lake.compare_with_source() == {}
    assert ledger["events"]["extent"] == ledger["event_edges"]["extent"] == "changed"
    assert ledger["state_groups"]["extent"] == "none"
    assert 0 < ledger["events"]["rows_read"] < 0.1 * ledger["events"]["rows_source"]
    assert ledger["event_edges"]["rows_read"] == 0
    deleted_keys = lake.deletions()
    assert sum(table == "event_edges" for table, _ in deleted_keys) == ledger["event_edges"]["rows_deleted"]
    assert sum(table == "erased_users" for table, _ in deleted_keys) == 2
    assert json.loads(next(key for table, key in deleted_keys if table == "erased_users")).keys() == {"user_id"}

    # A transaction that is open during a run, with a subtransaction: its IDs are older than the run's snapshot.
    with psycopg.connect(source_dsn) as writer:
        writer.execute("set session_replication_role = replica")
        writer.execute("update rooms set creator = '@before:it' where ctid < '(1,0)'")
        writer.execute("savepoint inner_one")
        writer.execute("insert into blocked_rooms values ('!late:it', '@admin:it')")
        writer.execute("release inner_one")
        source.execute("insert into erased_users values ('@committed:meanwhile')")
        lake.advance()
        assert lake.compare_with_source() == {}
        writer.commit()
    lake.advance()
    assert lake.compare_with_source() == {}

    # Vacuums move and freeze rows without changing them.
    source.execute("vacuum (full) events")
    source.execute("vacuum (freeze) event_json")
    assert {row["extent"] for row in lake.advance().values()} == {"none"}


def test_deleted_rows_are_found_without_hashes_of_the_source(
    lake: IncrementalLake, source: Source, server: EmbeddedServer
) -> None:
    lake.advance()
    source.execute(sql.SQL("alter database {} set log_statement = 'all'").format(sql.Identifier(source.info.dbname)))
    log_size = server.log.stat().st_size
    conditions = {
        "event_json": "ctid < '(2,0)'",
        "state_groups_state": "state_group % 7 = 0",
        "receipts_linearized": "stream_id % 2 = 0",
        "account_data": "user_id < '@c'",
    }
    deleted_counts = {
        table: source.execute(f"delete from {table} where {condition}".encode()).rowcount
        for table, condition in conditions.items()
    }
    ledger = lake.advance()
    source.execute(sql.SQL("alter database {} reset log_statement").format(sql.Identifier(source.info.dbname)))
    assert min(deleted_counts.values()) > 0
    assert {name: ledger[name]["rows_deleted"] for name in conditions} == deleted_counts
    assert {ledger[name]["extent"] for name in conditions} == {"changed"}
    assert lake.compare_with_source() == {}
    statements = server.log.read_bytes()[log_size:].decode().lower()
    assert """convert_to("event_id", 'sql_ascii'), 1, 3)""" in statements
    assert not re.search(r"md5|hash|sha\d", statements)


@pytest.mark.heavy
def test_many_deleted_rows_do_not_fill_the_driver(lake: IncrementalLake, source: Source) -> None:
    """Counts and keys, or a full copy, find the deletions of a purge or a compression."""
    source.execute(
        "insert into event_to_state_groups select '$' || md5(n::text), 60000000 from generate_series(1, 900000) n"
    )
    lake.advance()
    # All ranges of keys lose some of their rows.
    source.execute("delete from event_to_state_groups where state_group = 60000000 and right(event_id, 1) < '5'")
    memory_before = _peak_memory(is_reset=True)
    row = lake.advance()["event_to_state_groups"]
    assert row["extent"] == "changed"
    assert 200_000 < row["rows_deleted"] < 400_000
    assert _peak_memory() - memory_before < 150e6
    assert lake.compare_with_source() == {}
    source.execute("delete from event_to_state_groups where state_group = 60000000")
    for rewrites in (False, True):
        source.execute(
            "insert into state_groups_state select 50000000 + n / 100, '!many:it', 'm.room.member', '@user' || n,"
            " '$event' || n from generate_series(1, 900000) n"
        )
        lake.advance()
        source.execute("delete from state_groups_state where state_group between 50000001 and 50004000")
        if rewrites:
            source.execute("update state_groups_state set event_id = event_id")
        memory_before = _peak_memory(is_reset=True)
        row = lake.advance()["state_groups_state"]
        assert (row["extent"], row["rows_deleted"]) == ("full" if rewrites else "changed", 400_000)
        assert _peak_memory() - memory_before < 150e6
        source.execute("delete from state_groups_state where room_id = '!many:it'")
        lake.advance()
    keys = [json.loads(key) for table, key in lake.deletions() if table == "state_groups_state"]
    assert sum(key["state_group"] >= 50_000_000 for key in keys) == 2 * 900_000
    assert keys[0].keys() == {"state_group", "type", "state_key", "event_id"}
    assert lake.compare_with_source() == {}


def _peak_memory(*, is_reset: bool = False) -> float:
    """Return the peak memory of this process in bytes; with ``is_reset``, measure from now on."""
    if is_reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def test_random_histories(lake: IncrementalLake, source: Source) -> None:
    run_random_history(lake, source, VARIED_TABLES[::3], runs=2)


@pytest.mark.heavy
def test_random_histories_of_all_tables(server: EmbeddedServer, settings: Settings, tmp_path: Path) -> None:
    with (
        copied_source(server) as dsn,
        open_lake_of_tables(ALL_TABLES, server, settings, dsn, tmp_path) as lake,
        psycopg.connect(dsn, autocommit=True) as source,
    ):
        source.execute("set session_replication_role = replica")
        run_random_history(lake, source, ALL_TABLES, runs=6)


def test_one_of_several_rows_with_a_key_changes(lake: IncrementalLake, source: Source) -> None:
    """The row counts agree, because another row is deleted at the same time. Only the keys show the change."""
    source.execute(
        "insert into scheduled_tasks (id, action, status, timestamp, resource_id)"
        " select 'twin ' || n, 'purge', 'active', 1, '!twins:it' from generate_series(1, 3) n"
    )
    lake.advance()
    source.execute("update scheduled_tasks set status = 'complete' where id = 'twin 1'")
    source.execute("delete from scheduled_tasks where id = (select min(id) from scheduled_tasks where id <> 'twin 1')")
    lake.advance()
    assert lake.compare_with_source() == {}


def test_rows_read_twice_are_matched_where_keys_repeat(lake: IncrementalLake, source: Source, source_dsn: str) -> None:
    """On a busy server, a transaction is always open at the PostgreSQL snapshot.

    The next run reads again all rows written since that transaction began. It must not copy the table in full.
    """

    def add_auth_rows(events: str, times: int) -> None:
        source.execute(
            "insert into event_auth (event_id, auth_id, room_id) select '$event ' || n, '$auth', '!twice:it'"
            f" from {events} n, generate_series(1, %s)",
            [times],
        )

    add_auth_rows("generate_series(-40000, 5)", 1)
    lake.advance()
    with psycopg.connect(source_dsn) as long_transaction:
        long_transaction.execute("select pg_current_xact_id()")
        # These are more keys than one query takes, and an event with only new rows.
        add_auth_rows("generate_series(6, 12000)", 2)
        lake.advance()
        add_auth_rows("generate_series(12001, 12003)", 1)
        source.execute("delete from event_auth where event_id in ('$event 1', '$event 7')")
        row = lake.advance()["event_auth"]
        assert (row["extent"], row["rows_replaced"], row["rows_deleted"]) == ("changed", 2 * 11_994, 3)
        assert lake.compare_with_source() == {}
        # The lake already has a row for these keys.
        add_auth_rows("generate_series(2, 3)", 1)
        assert lake.advance()["event_auth"]["extent"] == "full"
        assert lake.compare_with_source() == {}


def test_a_table_that_drifted_once_stays_incremental(
    lake: IncrementalLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest release lacks the table, so its baseline is the previous release."""
    lake.advance()
    monkeypatch.setattr(lake, "settings", lake.settings.model_copy(update={"lakehouse_on_drift": "partial"}))
    source.execute("alter table receipts_linearized rename column event_id to target")
    assert "receipts_linearized" not in lake.advance()
    source.execute("alter table receipts_linearized rename column target to event_id")
    assert lake.advance()["receipts_linearized"]["extent"] == "none"
    assert lake.compare_with_source() == {}


def test_a_compaction_between_runs_changes_nothing(lake: IncrementalLake, source: Source) -> None:
    lake.app().spark.sql(
        "call lake.system.rewrite_data_files(table => 'bronze.events', options => map('rewrite-all', 'true'))"
    )
    source.execute("update events set depth = depth + 1 where stream_ordering % 9 = 0")
    assert lake.advance()["events"]["extent"] == "changed"
    assert lake.compare_with_source() == {}


def test_a_table_cannot_be_truncated_during_a_copy(
    lake: IncrementalLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To an older PostgreSQL snapshot, a table that was truncated and refilled is empty."""
    source.execute("set lock_timeout = '1s'")
    lock_errors = list[Exception]()

    def rewrite(*arguments: Any) -> Any:
        try:
            source.execute(
                "create temp table kept as table receipts_linearized; truncate receipts_linearized;"
                "insert into receipts_linearized table kept"
            )
        except psycopg.errors.LockNotAvailable as error:
            lock_errors.append(error)
        return count_tables(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(copy_tables, "count_tables", rewrite)
        lake.advance()
    assert lake.compare_with_source() == {}
    assert len(lock_errors) == 1


def test_a_source_that_went_back_is_copied_in_full(lake: IncrementalLake, source: Source) -> None:
    """A failed run reads a source that was restored to an earlier state. Then the source is ahead of the copy again."""
    lake.advance()
    assert {row["extent"] for row in lake.advance().values()} == {"none"}
    app = lake.app()
    (last,) = store.read_run_rows(app.catalog, "audit.snapshots", f"test_{lake.runs - 1}")
    restored_row = last | {
        "run_id": app.run.run_id,
        "wal_lsn": "0/1",
        "taken_at": last["taken_at"] + timedelta(seconds=1),
    }
    earlier_row = restored_row | {"run_id": "before", "taken_at": last["taken_at"] - timedelta(seconds=1)}
    other_timeline_row = restored_row | {"run_id": "of another timeline", "timeline": last["timeline"] + 1}
    store.append_audit_rows(app.catalog, "audit.snapshots", [earlier_row, other_timeline_row])
    assert {row["extent"] for row in lake.advance().values()} == {"none"}
    (last,) = store.read_run_rows(app.catalog, "audit.snapshots", f"test_{lake.runs}")
    store.append_audit_rows(
        app.catalog, "audit.snapshots", [restored_row | {"taken_at": last["taken_at"] + timedelta(seconds=1)}]
    )
    time.sleep(1.1)
    assert {row["extent"] for row in lake.advance().values()} == {"full"}
    assert lake.compare_with_source() == {}
    assert {row["extent"] for row in lake.advance().values()} == {"none"}


def test_a_restored_dump_is_copied_in_full(lake: IncrementalLake, sample_dsn: str) -> None:
    """The dump's transaction IDs are of other transactions, so no row counts as unchanged."""
    lake.settings = lake.settings.model_copy(update={"synapse_dsn": sample_dsn})
    assert {row["extent"] for row in lake.advance().values()} == {"full"}
    assert lake.compare_with_source() == {}
