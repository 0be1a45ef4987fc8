"""Maintenance compares the entries of damaged indexes with the copy."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest import check_indexes as comparison
from synapse_lakehouse.ingest import index_progress, index_rows
from synapse_lakehouse.ingest.check_indexes import check_indexes
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.index_fault_rows import FAULTS_TABLE
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.indexes import range_scan
from synapse_lakehouse.postgres.indexes.index_faults import IndexEntry
from synapse_lakehouse.postgres.indexes.key_range import KeyRange
from tests.conftest import lake_maker
from tests.support.incremental_lake import open_incremental_lake
from tests.support.index_damage import damaged_sample, restore_old_file
from tests.support.reader_role import reader_role
from tests.support.small_lake import SmallLake

COPIED = ("state_groups_state", "state_groups", "event_json", "event_edges", "receipts_linearized")

INDEXES = 12
"""Number of indexes of these tables."""
UNREADABLE = "event_edges_event_id_prev_event_id_idx"
SLACK_SECONDS = 2


@pytest.fixture(scope="module")
def damaged_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with damaged_sample(tmp_path_factory.mktemp("damaged") / "pg") as (_, dsn):
        yield dsn


@pytest.fixture
def lake(
    server: EmbeddedServer, settings: Settings, damaged_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallLake]:
    with open_lake(server, settings, damaged_dsn, tmp_path_factory.mktemp("lake"), COPIED) as lake:
        yield lake


@contextmanager
def open_lake(
    server: EmbeddedServer, settings: Settings, dsn: str, folder: Path, tables_copied: tuple[str, ...]
) -> Iterator[SmallLake]:
    """Open a lake of a few tables of the database."""
    small_catalogue = catalogue.load_catalogue()
    small_catalogue = small_catalogue.model_copy(update={"tables": tuple(map(small_catalogue.table, tables_copied))})
    with (
        reader_role(settings, dsn) as reader,
        lake_maker(server, settings, folder) as make,
        open_incremental_lake(make(synapse_dsn=reader.dsn)) as incremental,
    ):
        yield SmallLake(incremental.settings, declared=small_catalogue)


def run(
    lake: SmallLake, seconds: int = 600, *, publish: bool = True, on_drift: str = "fail"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run once, and return the rows of audit.index_checks and silver.index_faults."""
    app = lake.app()
    changed = {"lakehouse_index_check_seconds": seconds, "lakehouse_on_drift": on_drift}
    app = replace(app, settings=app.settings.model_copy(update=changed))
    tables.ensure_tables(app.catalog, lake.declared)
    with snapshot_session(app, lake.declared) as session:
        copy_tables(session)
        check_indexes(session)
    faults = [row.asDict() for row in app.spark.table(FAULTS_TABLE).orderBy("index_name", "kind", "key").collect()]
    if publish:
        lake.publish(app)
    return store.read_run_rows(app.catalog, "audit.index_checks", app.run.run_id), faults


def read_planted_faults(dsn: str) -> set[tuple[str, str, str]]:
    """Return index, kind and key of each planted fault, without read errors."""
    queries = {
        "state_groups_state_type_idx": ("missing foreign", "select state_group, type, state_key, event_id, room_id"
                                        " from state_groups_state where state_group > 1000000"),
        "state_groups_pkey": ("missing foreign", "select id, room_id from state_groups order by id desc limit 1"),
        "event_json_event_id_key": ("missing", "select event_id, room_id from event_json where length(event_id) = 45"),
    }  # fmt: skip
    faults = set()
    with psycopg.connect(dsn) as connection:
        connection.execute("set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off")
        for index, (kinds, query) in queries.items():
            cursor = connection.execute(query.encode())
            names = [column.name for column in cursor.description or ()]
            for row in cursor:
                key = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)
                faults |= {(index, kind, key) for kind in kinds.split()}
    return faults


def without_read_errors(faults: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(row["index_name"], row["kind"], row["key"]) for row in faults if row["kind"] != "unreadable"}


def test_a_run_finds_every_fault_until_the_index_is_rebuilt(lake: SmallLake, damaged_dsn: str) -> None:
    checks, faults = run(lake)
    assert without_read_errors(faults) == read_planted_faults(damaged_dsn)
    assert len(faults) == len(read_planted_faults(damaged_dsn)) + 1 > 200
    (unreadable,) = [row for row in faults if row["kind"] == "unreadable"]
    assert (unreadable["index_name"], unreadable["key"][:5]) == (UNREADABLE, "XX002")
    assert all(row["room_id"] for row in faults if row["kind"] != "unreadable")
    assert len(checks) == INDEXES
    (unfinished,) = [row for row in checks if row["index_name"] == UNREADABLE]
    # The entries after a read error do not count as compared.
    assert (unfinished["finished_at"], unfinished["pass"]) == (None, 1)
    assert "REINDEX" in unfinished["not_checked"]
    finished_checks = [row for row in checks if row is not unfinished]
    assert all(row["finished_at"] and row["next_key"] is None and row["not_checked"] is None for row in finished_checks)
    assert sum(row["faults"] for row in checks) == len(faults)


@pytest.fixture
def second_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, float]]:
    """Return whether each second read of a range had a time limit, and its seconds."""
    reads: list[tuple[bool, float]] = []
    read_range = range_scan.IndexScan.read_range

    def read(
        scan: range_scan.IndexScan, keys: KeyRange, until: float | None, groups: list[str] | None
    ) -> list[IndexEntry] | None:
        start = time.monotonic()
        entries = read_range(scan, keys, until, groups)
        reads.append((until is not None, time.monotonic() - start))
        return entries

    monkeypatch.setattr(range_scan.IndexScan, "read_range", read)
    return reads


def estimate_runs(checks: list[dict[str, Any]], scan_seconds: float) -> float:
    """Return the number of runs that read all entries, as docs/how-to/check-the-database.md computes it."""
    entries, checked, seconds = (sum(row[name] for row in checks) for name in ("entries", "entries_checked", "seconds"))
    return float(entries / (checked / seconds * scan_seconds))


def test_ranges_rotate_over_runs(
    lake: SmallLake, damaged_dsn: str, monkeypatch: pytest.MonkeyPatch, second_reads: list[tuple[bool, float]]
) -> None:
    monkeypatch.setattr(range_scan, "_MAXIMUM_ENTRIES", 150)
    monkeypatch.setattr(index_progress, "_FIRST_ENTRIES", 150)
    # The next run repeats the unpublished run.
    run(lake, 1, publish=False)
    finished_indexes, estimates = set[str](), list[float]()
    for _ in range(40):
        second_reads.clear()
        checks, faults = run(lake, 1)
        seconds = sum(row["seconds"] for row in checks) + sum(
            read_seconds for is_limited, read_seconds in second_reads if is_limited
        )
        assert seconds < 1 + SLACK_SECONDS
        assert [is_limited for is_limited, _ in second_reads].count(False) <= 1
        estimates.append(estimate_runs(checks, 0.75))
        finished_indexes |= {row["index_name"] for row in checks if row["finished_at"]}
        if len(finished_indexes) == INDEXES - 1:
            break
    assert UNREADABLE not in finished_indexes
    assert len(finished_indexes) == INDEXES - 1
    assert without_read_errors(faults) == read_planted_faults(damaged_dsn)
    runs = len(estimates)
    assert runs / 3 - 2 < median(estimates) < 3 * runs + 2, estimates
    with psycopg.connect(damaged_dsn, autocommit=True) as owner:
        owner.execute(b"reindex table state_groups_state; reindex table event_edges")
    checks, faults = run(lake)
    assert all(row["finished_at"] and row["not_checked"] is None for row in checks)
    assert {row["index_name"] for row in faults} == {"state_groups_pkey", "event_json_event_id_key"}
    assert run(lake, 0) == ([], faults)
    with psycopg.connect(damaged_dsn, autocommit=True) as owner:
        owner.execute(b"reindex table state_groups; alter table event_json rename format_version to other")
        _, others = run(lake, on_drift="partial")
        owner.execute(b"alter table event_json rename other to format_version")
    assert {row["index_name"] for row in others} == {"event_json_event_id_key"}
    assert run(lake, 0) == ([], others)


FEW, MANY, OF_ONE_KEY = 7, 150, 150
"""Numbers of new rows that an old index lacks: of a key with many rows, of many keys, and of one new key."""
LARGE_CHANGES = (
    # The new rows are the last in the order of the index, after its last entry.
    "insert into event_json select '$~' || event_id, room_id, internal_metadata, json, format_version from event_json"
    f" order by event_id limit {MANY}",
    "create table largest as select room_id from state_groups group by room_id order by count(*) desc limit 1",
    "insert into state_groups select 1000000 + number, room_id, 'few' from largest,"
    f" generate_series(1, {FEW}) as number",
    f"insert into state_groups select 2000000 + number, '~', 'one key' from generate_series(1, {OF_ONE_KEY}) as number",
)
BY_ROOM = "state_groups_room_id_idx"
MAXIMUM, RANGE = 100, 80


def test_a_run_compares_a_limited_number_of_rows(
    server: EmbeddedServer, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_scan, "_MAXIMUM_ENTRIES", RANGE)
    monkeypatch.setattr(index_progress, "_FIRST_ENTRIES", RANGE)
    monkeypatch.setattr(index_progress, "IndexProgress", partial(index_progress.IndexProgress, count=RANGE))
    monkeypatch.setattr(index_rows, "MAX_EXAMINED", MAXIMUM)
    monkeypatch.setattr(comparison, "MAX_EXAMINED", MAXIMUM)
    damages = dict.fromkeys(("event_json_event_id_key", BY_ROOM), restore_old_file)
    with (
        damaged_sample(tmp_path / "pg", damages, LARGE_CHANGES) as (_, dsn),
        open_lake(server, settings, dsn, tmp_path / "lake", ("event_json", "state_groups")) as lake,
    ):
        stopped, finished = "", False
        for _ in range(20):
            checks, faults = run(lake)
            by_index = {row["index_name"]: row for row in checks}
            assert all(row["faults"] <= MAXIMUM for row in checks)
            stopped = stopped or by_index[BY_ROOM]["not_checked"] or ""
            finished |= by_index["event_json_event_id_key"]["finished_at"] is not None
            if stopped and finished:
                break
        assert finished
        assert stopped.endswith("differ; REINDEX rebuilds it")
        kinds = {(row["index_name"], row["kind"]) for row in faults}
        assert kinds == {(index, "missing") for index in damages}
        rooms = Counter(row["room_id"] for row in faults if row["index_name"] == BY_ROOM)
        assert sum(row["index_name"] != BY_ROOM for row in faults) == MANY
        assert 0 < rooms.pop("~") <= MAXIMUM
        assert list(rooms.values()) == [FEW]

        monkeypatch.setattr(index_progress, "_MAX_RECORDED_FAULTS", MAXIMUM)
        checks, again = run(lake)
        assert again == faults
        reasons = {row["index_name"]: row["not_checked"] for row in checks}
        assert "faults are recorded" in reasons["event_json_event_id_key"]
