"""Increments on a real database: whatever happens to its rows, the lake is equal to it after the next run."""

import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.commits import PreparedCommit, prepare_row_change
from synapse_lakehouse.ingest import copy_tables, row_deletes, table_copy
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.count_tables import count_tables
from synapse_lakehouse.ingest.table_copy import TableCopy
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows
from synapse_lakehouse.spark_app import SparkApp
from tests.conftest import copied_source, lake_maker
from tests.support.incremental_lake import AdvancingLake, advancing

Source = psycopg.Connection[tuple[object, ...]]

FULL = catalogue.load_catalogue()
# Without its version a database is no Synapse's.
ALL = [table.name for table in FULL.copied_tables() if table.name != "schema_version"]
OF_EVERY_KIND = [
    "events", "event_json", "event_auth", "event_edges", "event_to_state_groups", "room_memberships", "rejections",
    "state_groups", "state_groups_state", "rooms", "blocked_rooms", "erased_users", "presence_stream",
    "receipts_linearized", "account_data", "scheduled_tasks", "stream_positions",
]  # fmt: skip
"""Large and small tables of every load mode; with keys that are enforced, are not, or hold NULL; and projections."""


@pytest.fixture(scope="module")
def source_dsn(server: EmbeddedServer, sample_dsn: str) -> Iterator[str]:
    """A copy of the sample for these tests, which all go on from where the one before left it and the lake."""
    with copied_source(server) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, source_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AdvancingLake]:
    with _lake_of(OF_EVERY_KIND, server, settings, source_dsn, tmp_path_factory.mktemp("increments")) as lake:
        yield lake


@contextmanager
def _lake_of(
    names: list[str], server: EmbeddedServer, settings: Settings, source: str, folder: Path
) -> Iterator[AdvancingLake]:
    few = FULL.model_copy(update={"tables": tuple(map(FULL.table, names)), "streams": ()})
    with pytest.MonkeyPatch.context() as patched, lake_maker(server, settings, folder) as make:
        patched.setattr(catalogue, "load_catalogue", lambda: few)
        with advancing(make(synapse_dsn=source)) as lake:
            lake.advance()
            yield lake


@pytest.fixture
def source(source_dsn: str) -> Iterator[Source]:
    """A session that may do anything to the source, foreign keys notwithstanding."""
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        yield connection


def test_what_happens_to_rows_reaches_the_lake_and_nothing_else_is_read(
    lake: AdvancingLake, source: Source, source_dsn: str
) -> None:
    unchanged = lake.advance()
    assert {row["extent"] for row in unchanged.values()} == {"none"}
    assert sum(row["rows_read"] for row in unchanged.values()) == 0

    # As seen on federating servers: outliers come and go, events are renumbered, state groups come late and change.
    source.execute("update events set outlier = not outlier where stream_ordering % 50 = 0")
    source.execute("update events set stream_ordering = -900000 - stream_ordering where stream_ordering % 70 = 3")
    source.execute("update event_json set json = '{}' where event_id in (select event_id from events limit 20)")
    source.execute("update event_to_state_groups set state_group = 2 where ctid < '(2,0)'")
    source.execute("update room_memberships set forgotten = 1 where ctid < '(1,0)'")
    source.execute("insert into rejections select event_id, 'why', 'now' from events limit 3")
    source.execute("delete from event_edges where event_id in (select event_id from events limit 30)")
    source.execute("truncate erased_users")
    changed = lake.advance()
    assert lake.departures() == {}
    assert changed["events"]["extent"] == changed["event_edges"]["extent"] == "changed"
    assert changed["state_groups"]["extent"] == "none"
    assert 0 < changed["events"]["rows_read"] < 0.1 * changed["events"]["rows_source"]
    assert changed["event_edges"]["rows_read"] == 0
    deleted = lake.deletions()
    assert sum(table == "event_edges" for table, _ in deleted) == changed["event_edges"]["rows_deleted"]
    assert sum(table == "erased_users" for table, _ in deleted) == 2
    assert json.loads(next(key for table, key in deleted if table == "erased_users")).keys() == {"user_id"}

    # A transaction that was open while a run looked, with an inner one: its ids are older than the run's snapshot.
    with psycopg.connect(source_dsn) as writer:
        writer.execute("set session_replication_role = replica")
        writer.execute("update rooms set creator = '@before:it' where ctid < '(1,0)'")
        writer.execute("savepoint inner_one")
        writer.execute("insert into blocked_rooms values ('!late:it', '@admin:it')")
        writer.execute("release inner_one")
        source.execute("insert into erased_users values ('@committed:meanwhile')")
        lake.advance()
        assert lake.departures() == {}
        writer.commit()
    lake.advance()
    assert lake.departures() == {}

    # What moves rows about, or makes them old, changes nothing.
    source.execute("vacuum (full) events")
    source.execute("vacuum (freeze) event_json")
    assert {row["extent"] for row in lake.advance().values()} == {"none"}


def test_deleted_rows_are_found_without_hashing_in_the_source(
    lake: AdvancingLake, source: Source, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_deletes, "_KEYS_WITHOUT_NARROWING", 0)
    lake.advance()
    source.execute(
        sql.SQL("alter database {} set log_statement = 'all'").format(sql.Identifier(source.info.dbname)),
    )
    said = server.log.stat().st_size
    gone = {
        "event_json": "ctid < '(2,0)'",
        "state_groups_state": "state_group % 7 = 0",
        "receipts_linearized": "stream_id % 2 = 0",
        "account_data": "user_id < '@c'",
    }
    deleted = {
        table: source.execute(f"delete from {table} where {which}".encode()).rowcount for table, which in gone.items()
    }
    changed = lake.advance()
    source.execute(sql.SQL("alter database {} reset log_statement").format(sql.Identifier(source.info.dbname)))
    assert min(deleted.values()) > 0
    assert {name: changed[name]["rows_deleted"] for name in gone} == deleted
    assert {changed[name]["extent"] for name in gone} == {"changed"}
    assert lake.departures() == {}
    statements = server.log.read_bytes()[said:].decode().lower()
    assert 'left("event_id", 24)' in statements
    assert not re.search(r"md5|hash|sha\d", statements)


@pytest.mark.heavy
def test_rows_that_went_by_the_hundred_thousand_do_not_pass_through_the_driver(
    lake: AdvancingLake, source: Source
) -> None:
    """As after a purge, or after rooms were compressed: found by counts, or because the table is copied whole."""
    for rewrites in (False, True):
        source.execute(
            "insert into state_groups_state select 50000000 + n / 100, '!many:it', 'm.room.member', '@user' || n,"
            " '$event' || n from generate_series(1, 400000) n"
        )
        lake.advance()
        source.execute("delete from state_groups_state where room_id = '!many:it'")
        if rewrites:
            source.execute("update state_groups_state set event_id = event_id")
        before = _peak(anew=True)
        row = lake.advance()["state_groups_state"]
        assert (row["extent"], row["rows_deleted"]) == ("full" if rewrites else "changed", 400_000)
        assert _peak() - before < 150e6
    keys = [json.loads(key) for table, key in lake.deletions() if table == "state_groups_state"]
    assert sum(key["state_group"] >= 50_000_000 for key in keys) == 2 * 400_000
    assert keys[0].keys() == {"state_group", "type", "state_key"}
    assert lake.departures() == {}


def _peak(*, anew: bool = False) -> float:
    """Most bytes that this process held in memory; ``anew``: from now on."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def test_random_histories(lake: AdvancingLake, source: Source) -> None:
    _live(lake, source, OF_EVERY_KIND[::3], runs=2)


@pytest.mark.heavy
def test_random_histories_of_all_tables(server: EmbeddedServer, settings: Settings, tmp_path: Path) -> None:
    with (
        copied_source(server) as dsn,
        _lake_of(ALL, server, settings, dsn, tmp_path) as lake,
        psycopg.connect(dsn, autocommit=True) as source,
    ):
        source.execute("set session_replication_role = replica")
        _live(lake, source, ALL, runs=6)


def _live(lake: AdvancingLake, source: Source, names: list[str], runs: int) -> None:
    """Rows of many tables change, go and come back under the same key, for several runs."""
    chance = random.Random(20261121)
    source.execute("select setseed(0.20261121)")
    changing = [catalogue.load_catalogue().table(name) for name in names]
    for table in changing:
        source.execute(sql.SQL("create table {} as table {} with no data").format(*_names(table.name)))
    for _ in range(runs):
        for table in changing:
            stash, name = _names(table.name)
            share = chance.choice([0.0, 0.02, 0.2, 0.9])
            source.execute(
                sql.SQL(
                    "insert into {} overriding system value select * from {} where random() < 0.5"
                    " on conflict do nothing"
                ).format(name, stash)
            )
            source.execute(sql.SQL("truncate {}").format(stash))
            source.execute(
                sql.SQL(
                    "with gone as (delete from {} where random() < {} returning *) insert into {} table gone"
                ).format(name, sql.Literal(share / 3), stash)
            )
            free = (
                {one.source_columns[0] for one in table.columns}
                - _unique_columns(source, table.name)
                - {*table.primary_key}
            )
            column = chance.choice(sorted(free) or [""])
            if column:
                source.execute(
                    sql.SQL(
                        "update {t} set {c} = coalesce((select {c} from {t} offset 1 limit 1), {c})"
                        " where random() < {s}"
                    ).format(t=name, c=sql.Identifier(column), s=sql.Literal(share))
                )
        lake.advance()
        assert lake.departures() == {}


def test_the_end_of_a_table_that_grew_is_read_apart_and_once(lake: AdvancingLake, source: Source) -> None:
    def grow(rows: int) -> None:
        source.execute(
            "insert into event_edges (event_id, prev_event_id, room_id, is_state)"
            " select '$grown:' || gen_random_uuid(), '$before', '!grown:it', false from generate_series(1, %s)",
            [rows],
        )

    def ranges() -> list[tuple[bool, bool, int]]:
        row = lake.advance()["event_edges"]
        assert lake.departures() == {}
        assert sum(one["rows"] for one in row["ranges"]) == row["rows_read"]
        return sorted((one["first_page"] > 0, one["last_page"] is None, one["rows"]) for one in row["ranges"])

    grow(20_000)
    assert lake.advance()["event_edges"]["heap_pages"] > 200
    grow(1_000)
    assert ranges() == [(True, True, 1_000)]

    # Changes elsewhere, and rows that go, some of them new themselves.
    before = source.execute("update event_edges set is_state = true where ctid < '(9,0)'").rowcount
    grow(500)
    source.execute("update event_edges set is_state = true where ctid >= '(5,0)' and ctid < '(9,0)'")
    gone = source.execute("delete from event_edges where event_id like '$grown:%0'").rowcount
    source.execute("vacuum event_edges")
    room = source.execute("update event_edges set is_state = true where ctid >= '(20,0)' and ctid < '(60,0)'").rowcount
    grow(2_000)
    assert gone > 1_000
    found = ranges()
    assert [one[:2] for one in found] == [(False, False), (True, True)]
    assert min(rows for *_, rows in found) > 0
    assert sum(rows for *_, rows in found) > max(before, room)

    # A table that changed by more than half is read whole all the same, and once.
    grow(30_000)
    source.execute("delete from event_edges where room_id = '!grown:it' and ctid < '(200,0)'")
    assert ranges()[0][:2] == (False, True)
    source.execute("delete from event_edges where room_id = '!grown:it'")
    source.execute("vacuum event_edges")
    assert lake.advance()["event_edges"]["rows_read"] == 0
    assert lake.departures() == {}


def test_what_a_table_grew_by_is_readied_while_the_source_counts(
    lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, readied = "bronze.event_edges", threading.Event()
    written: list[str] = []
    meanwhile: list[Callable[[], None]] = []

    def prepare(spark: SparkSession, of: str, *arguments: Any) -> PreparedCommit:
        prepared = prepare_row_change(spark, of, *arguments)
        if of == name:
            written.append(of)
            while meanwhile:
                meanwhile.pop()()
            readied.set()
        return prepared

    def count(connection: Connection, table: catalogue.Table, *arguments: Any) -> RowCounts:
        if f"bronze.{table.name}" == name:
            assert readied.wait(60)
        return count_changed_rows(connection, table, *arguments)

    def advance_after(*statements: str) -> int:
        """How often a commit of the table was written."""
        for statement in statements:
            source.execute(statement.encode())
        written.clear()
        readied.clear()
        row = lake.advance()["event_edges"]
        assert row["extent"] == "changed"
        assert lake.departures() == {}
        return len(written)

    grow = (
        "insert into event_edges (event_id, prev_event_id, room_id, is_state)"
        " select '$readied:' || gen_random_uuid(), '$before', '!readied:it', false from generate_series(1, 20000)"
    )
    source.execute(grow.encode())
    lake.advance()
    monkeypatch.setattr(table_copy, "prepare_row_change", prepare)
    monkeypatch.setattr(table_copy, "count_changed_rows", count)
    assert advance_after(grow) == 1
    assert advance_after(grow, "update event_edges set is_state = true where ctid < '(3,0)'") == 2
    assert advance_after(grow, "delete from event_edges where event_id like '$readied:%0'") == 2

    # Whoever else changes the table's metadata meanwhile does not make the run fail.
    def somebody_sets_a_property() -> None:
        with lake.app().catalog.load_table(name).transaction() as change:
            change.set_properties({"owner": "somebody"})

    meanwhile.append(somebody_sets_a_property)
    assert advance_after(grow) == 1

    # What was written for nothing is gone.
    table = lake.app().catalog.load_table(name)
    kept = {one.manifest_list for one in table.snapshots()}
    kept |= {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
    here = Path(table.location().removeprefix("file:")) / "metadata"
    assert {path.name for path in here.glob("*.avro")} == {Path(one).name for one in kept}
    source.execute("delete from event_edges where room_id = '!readied:it'")
    lake.advance()
    assert lake.departures() == {}


def test_an_interrupted_copy_goes_on_where_it_stopped(
    lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges of pages that were finished are not read again, only what changed in them since."""
    app = _interrupted(lake, source, monkeypatch)
    source.execute("update event_json set json = '{}' where ctid < '(30,0)' and random() < 0.1")
    source.execute("delete from event_json where random() < 0.05")
    lake.copy(app)
    lake.publish(app)
    assert lake.departures() == {}
    (row,) = [row for row in lake.ledger(app) if row["table_name"] == "event_json"]
    assert row["extent"] == "resumed"
    assert row["rows_read"] < 0.8 * row["rows_source"]
    # each range that was read stands for itself in the ledger
    ranges = row["ranges"]
    assert len(ranges) > 3
    assert sum(one["rows"] for one in ranges) == row["rows_read"]
    assert all(one["hash_read"] == one["hash_written"] for one in ranges)
    assert f"{combine_hashes(int(one['hash_read'], 16) for one in ranges):016x}" == row["hash_read"]


def test_what_is_left_of_a_source_that_was_behind_since_is_not_gone_on_from(
    lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = _interrupted(lake, source, monkeypatch)
    (last,) = store.read_run_rows(app.catalog, "audit.snapshots", app.run.run_id)
    behind = {"run_id": "another", "wal_lsn": "0/1", "taken_at": last["taken_at"] + timedelta(milliseconds=1)}
    store.append_audit_rows(app.catalog, "audit.snapshots", [last | behind])
    lake.copy(app)
    lake.publish(app)
    assert {row["extent"] for row in lake.ledger(app)} == {"full"}
    assert lake.departures() == {}


def test_a_row_that_shares_its_key_changes_alone(lake: AdvancingLake, source: Source) -> None:
    """Counts agree, as another row goes at the same time: only the key tells that they must not be trusted."""
    source.execute(
        "insert into scheduled_tasks (id, action, status, timestamp, resource_id)"
        " select 'twin ' || n, 'purge', 'active', 1, '!twins:it' from generate_series(1, 3) n"
    )
    lake.advance()
    source.execute("update scheduled_tasks set status = 'complete' where id = 'twin 1'")
    source.execute("delete from scheduled_tasks where id = (select min(id) from scheduled_tasks where id <> 'twin 1')")
    lake.advance()
    assert lake.departures() == {}


def test_rows_that_are_read_again_are_told_apart_where_keys_may_repeat(
    lake: AdvancingLake, source: Source, source_dsn: str
) -> None:
    """On a busy server some transaction is open whenever a snapshot is taken: what was written since it began is read
    again by the next run, and must not make that copy a large table whole."""

    def name(events: str, times: int) -> None:
        source.execute(
            "insert into event_auth (event_id, auth_id, room_id) select '$event ' || n, '$auth', '!twice:it'"
            f" from {events} n, generate_series(1, %s)",
            [times],
        )

    name("generate_series(-40000, 5)", 1)
    lake.advance()
    with psycopg.connect(source_dsn) as open_for_long:
        open_for_long.execute("select pg_current_xact_id()")
        # More than is asked for at once, and one event whose rows are all new.
        name("generate_series(6, 12000)", 2)
        lake.advance()
        name("generate_series(12001, 12003)", 1)
        source.execute("delete from event_auth where event_id in ('$event 1', '$event 7')")
        row = lake.advance()["event_auth"]
        assert (row["extent"], row["rows_replaced"], row["rows_deleted"]) == ("changed", 2 * 11_994, 3)
        assert lake.departures() == {}
        # Of these keys an older row is there, too.
        name("generate_series(2, 3)", 1)
        assert lake.advance()["event_auth"]["extent"] == "full"
        assert lake.departures() == {}


def test_a_table_that_drifted_for_a_while_is_gone_on_with(
    lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest release does not have it: the one before tells what was copied of it."""
    lake.advance()
    monkeypatch.setattr(lake, "settings", lake.settings.model_copy(update={"lakehouse_on_drift": "partial"}))
    source.execute("alter table receipts_linearized rename column event_id to target")
    assert "receipts_linearized" not in lake.advance()
    source.execute("alter table receipts_linearized rename column target to event_id")
    assert lake.advance()["receipts_linearized"]["extent"] == "none"
    assert lake.departures() == {}


def test_a_compaction_between_runs_changes_nothing(lake: AdvancingLake, source: Source) -> None:
    lake.app().spark.sql(
        "call lake.system.rewrite_data_files(table => 'bronze.events', options => map('rewrite-all', 'true'))"
    )
    source.execute("update events set depth = depth + 1 where stream_ordering % 9 = 0")
    assert lake.advance()["events"]["extent"] == "changed"
    assert lake.departures() == {}


def test_no_table_is_emptied_while_it_is_copied(
    lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older snapshot sees of a table that was truncated and filled again is nothing."""
    source.execute("set lock_timeout = '1s'")
    refused = list[Exception]()

    def rewrite(*arguments: Any) -> Any:
        try:
            source.execute(
                "create temp table kept as table receipts_linearized; truncate receipts_linearized;"
                "insert into receipts_linearized table kept"
            )
        except psycopg.errors.LockNotAvailable as error:
            refused.append(error)
        return count_tables(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(copy_tables, "count_tables", rewrite)
        lake.advance()
    assert lake.departures() == {}
    assert len(refused) == 1


def test_a_source_that_was_behind_since_is_copied_whole(lake: AdvancingLake, source: Source) -> None:
    """Set back to an earlier state of its disk, seen by a run that failed, and ahead of the published copy again."""
    lake.advance()
    assert {row["extent"] for row in lake.advance().values()} == {"none"}
    app = lake.app()
    (last,) = store.read_run_rows(app.catalog, "audit.snapshots", f"test_{lake.runs - 1}")
    behind = last | {"run_id": app.run.run_id, "wal_lsn": "0/1", "taken_at": last["taken_at"] + timedelta(seconds=1)}
    earlier = behind | {"run_id": "before", "taken_at": last["taken_at"] - timedelta(seconds=1)}
    elsewhere = behind | {"run_id": "of another timeline", "timeline": last["timeline"] + 1}
    store.append_audit_rows(app.catalog, "audit.snapshots", [earlier, elsewhere])
    assert {row["extent"] for row in lake.advance().values()} == {"none"}
    (last,) = store.read_run_rows(app.catalog, "audit.snapshots", f"test_{lake.runs}")
    store.append_audit_rows(
        app.catalog, "audit.snapshots", [behind | {"taken_at": last["taken_at"] + timedelta(seconds=1)}]
    )
    time.sleep(1.1)
    assert {row["extent"] for row in lake.advance().values()} == {"full"}
    assert lake.departures() == {}
    assert {row["extent"] for row in lake.advance().values()} == {"none"}


def test_a_restored_dump_is_copied_whole(lake: AdvancingLake, sample_dsn: str) -> None:
    """Its transaction ids mean other transactions, so nothing may be taken for unchanged."""
    lake.settings = lake.settings.model_copy(update={"synapse_dsn": sample_dsn})
    assert {row["extent"] for row in lake.advance().values()} == {"full"}
    assert lake.departures() == {}


def _interrupted(lake: AdvancingLake, source: Source, monkeypatch: pytest.MonkeyPatch) -> SparkApp:
    """The app of a run that has some of the many parts of event_json, which changed, when the machine goes down."""
    monkeypatch.setattr(page_ranges, "PAGES_PER_CHUNK", 20)
    source.execute("update event_json set format_version = format_version")
    source.execute("vacuum (full) event_json")
    app, keep, left = lake.app(), TableCopy.accept_part, iter(range(15))

    def dies(copy: TableCopy, *part: Any) -> CopyProgress:
        if copy.table.name == "event_json" and next(left, None) is None:
            raise ConnectionError("the machine went down")
        return keep(copy, *part)

    with monkeypatch.context() as patched:
        patched.setattr(TableCopy, "accept_part", dies)
        with pytest.raises(ConnectionError):
            lake.copy(app)
    return app


def _names(table: str) -> tuple[sql.Identifier, sql.Identifier]:
    return sql.Identifier(f"stash_{table}"), sql.Identifier(table)


def _unique_columns(source: Source, table: str) -> set[object]:
    return {
        name
        for (name,) in source.execute(
            "select attname::text from pg_index"
            " join pg_attribute on attrelid = indrelid and attnum = any(indkey::int2[])"
            " where indrelid = to_regclass(%s) and indisunique",
            [table],
        )
    }
