"""``lakehouse doctor --deep --indexes`` compares indexes with the heap."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.local.postgres.sample import read_server_name
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.indexes import range_scan
from synapse_lakehouse.postgres.indexes.btree_index import read_indexes
from synapse_lakehouse.postgres.indexes.heap_comparison import IndexComparison, compare_with_heap
from synapse_lakehouse.postgres.indexes.index_faults import IndexFaultKind
from synapse_lakehouse.postgres.indexes.index_scan_sql import build_heap_query
from tests.support.doctor import Examine
from tests.support.index_damage import DAMAGES, damaged_sample, repeat_entry
from tests.support.reader_role import reader_role

FOREIGN, MISSING, REPEATED, UNREADABLE = IndexFaultKind


@pytest.fixture(scope="module")
def damaged_dsn(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URI of the sample with damaged indexes, for the role of ``lakehouse grants``."""
    with damaged_sample(tmp_path_factory.mktemp("damaged") / "pg") as (_, dsn), reader_role(settings, dsn) as reader:
        yield reader.dsn


def compare(dsn: str, table: str, index_name: str | None = None) -> dict[str, IndexComparison]:
    settings = Settings(_env_file=None, synapse_dsn=dsn, synapse_server_name=read_server_name())
    with connect(settings) as connection:
        indexes = read_indexes(connection, catalogue.load_catalogue().table(table))
        connection.rollback()
        return {
            index.name: compare_with_heap(connection, index)
            for index in indexes.checkable
            if index_name in (None, index.name)
        }


def read_rows(dsn: str, query: str) -> set[tuple[object, ...]]:
    with psycopg.connect(dsn) as connection:
        connection.execute("set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off")
        return set(connection.execute(query.encode()))


def test_entries_to_rows_of_other_groups_are_faults(damaged_dsn: str) -> None:
    (comparison,) = compare(damaged_dsn, "state_groups_state").values()
    new_rows = read_rows(
        damaged_dsn,
        "select ctid::text, state_group, type, state_key from state_groups_state where state_group > 1000000",
    )
    assert comparison.entries == comparison.rows
    assert {fault.row for fault in comparison.faults if fault.kind is FOREIGN} == new_rows
    assert {fault.row for fault in comparison.faults if fault.kind is MISSING} == new_rows
    assert len(comparison.faults) == 2 * len(new_rows) > 150


def test_an_entry_to_the_next_key_is_a_fault(damaged_dsn: str) -> None:
    comparisons = compare(damaged_dsn, "state_groups")
    last_rows = read_rows(damaged_dsn, "select ctid::text, id from state_groups order by id desc limit 1")
    unique = comparisons.pop("state_groups_pkey")
    assert unique.entries == unique.rows
    assert {(fault.kind, fault.row) for fault in unique.faults} == {
        (kind, row) for kind in (FOREIGN, MISSING) for row in last_rows
    }
    assert [other.faults for other in comparisons.values()] == [[]]


def test_rows_that_a_unique_index_lacks_are_faults(damaged_dsn: str) -> None:
    (comparison,) = compare(damaged_dsn, "event_json").values()
    new_rows = read_rows(
        damaged_dsn, "select ctid::text, event_id from event_json where event_id like '%x' and length(event_id) = 45"
    )
    assert {(fault.kind, fault.row) for fault in comparison.faults} == {(MISSING, row) for row in new_rows}
    assert (len(new_rows), comparison.rows - comparison.entries) == (7, 7)


def test_a_read_error_is_a_finding(damaged_dsn: str) -> None:
    comparisons = compare(damaged_dsn, "event_edges", "event_edges_event_id_prev_event_id_idx")
    (fault,) = comparisons["event_edges_event_id_prev_event_id_idx"].faults
    assert fault.kind is UNREADABLE
    assert "XX002" in fault.row[0]


def test_the_command_names_index_and_remedy(examine: Examine, damaged_dsn: str) -> None:
    code, findings = examine(
        "--deep", "--indexes", "state_groups_state", "--indexes", "event_edges", "--indexes", "event_json",
        synapse_dsn=damaged_dsn, synapse_server_name=read_server_name(),
    )  # fmt: skip
    assert code == 1
    failed = [finding for finding in findings["indexes"] if finding["level"] == "FAIL"]
    assert {finding["message"].split()[0] for finding in failed} == DAMAGES.keys() - {"state_groups_pkey"}
    assert all("REINDEX" in finding["advice"] for finding in failed)
    assert "duplicates" not in findings


def test_repeated_entries_are_faults(tmp_path: Path) -> None:
    index = "event_to_state_groups_sg_index"
    with damaged_sample(tmp_path / "pg", {}, ()) as (_, dsn):
        ((first, second, group),) = read_rows(
            dsn,
            "select (array_agg(ctid order by ctid))[1]::text, (array_agg(ctid order by ctid))[2]::text, state_group"
            " from event_to_state_groups group by state_group having count(*) > 2 order by count(*) desc limit 1",
        )
    with damaged_sample(tmp_path / "pg", {index: repeat_entry(str(first), str(second))}, ()) as (_, dsn):
        comparison = compare(dsn, "event_to_state_groups", index)[index]
        assert comparison.entries == comparison.rows
        assert {(fault.kind, fault.row) for fault in comparison.faults} == {
            (REPEATED, (first, group)), (MISSING, (second, group)),
        }  # fmt: skip


def test_large_differences_are_examined_in_part(damaged_dsn: str) -> None:
    settings = Settings(_env_file=None, synapse_dsn=damaged_dsn, synapse_server_name=read_server_name())
    with connect(settings) as connection:
        (index,) = read_indexes(connection, catalogue.load_catalogue().table("state_groups_state")).checkable
        connection.rollback()
        comparison = compare_with_heap(connection, index, max_rows=10)
    assert 0 < comparison.examined < comparison.differing
    assert Counter(fault.kind for fault in comparison.faults).keys() == {FOREIGN, MISSING}


def test_intact_indexes_have_no_fault(reader: str) -> None:
    checked = 0
    for table in catalogue.load_catalogue().copied_tables():
        for name, comparison in compare(reader, table.name).items():
            assert (name, comparison.not_checked, comparison.faults, comparison.entries) == (
                name,
                "",
                [],
                comparison.rows,
            )
            checked += 1
    assert checked > 100


def test_a_timeout_is_no_damage(reader: str, source_copy: str) -> None:
    settings = Settings(
        _env_file=None,
        synapse_dsn=reader,
        synapse_server_name=read_server_name(),
        lakehouse_statement_timeout_seconds=1,
    )
    with psycopg.connect(source_copy) as locker, connect(settings) as connection:
        (index, *_) = read_indexes(connection, catalogue.load_catalogue().table("threads")).checkable
        connection.rollback()
        locker.execute("lock table threads in access exclusive mode")
        with pytest.raises(ReadError):
            compare_with_heap(connection, index)


def test_ranges_together_contain_each_row_once(reader: str, source_copy: str) -> None:
    """Keys contain NULLs, and the ranges have different sizes."""
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute("set session_replication_role = replica")
        owner.execute("update events set stream_ordering = null where stream_ordering % 7 = 0")
        owner.execute("update presence_stream set user_id = null, stream_id = null where stream_id % 3 = 0")
        owner.execute("update presence_stream set user_id = null where stream_id % 2 = 0")
    settings = Settings(_env_file=None, synapse_dsn=reader, synapse_server_name=read_server_name())
    with connect(settings) as connection, pytest.MonkeyPatch.context() as patch:
        for name in ("events", "presence_stream", "receipts_linearized", "room_memberships"):
            table = catalogue.load_catalogue().table(name)
            for index in read_indexes(connection, table).checkable:
                rows = connection.execute(
                    sql.SQL("select count(*) from ({}) r").format(build_heap_query(index))
                ).fetchone()
                patch.setattr(range_scan, "_MINIMUM_ENTRIES", 1)
                patch.setattr(range_scan, "_MAXIMUM_ENTRIES", 1 + index.entries // 7)
                scan = range_scan.IndexScan(connection, index, [])
                parts = list(scan.iterate_ranges(None, 600, 1 + index.entries // 9))
                assert (sum(part.digest.rows for part in parts),) == rows, index.name
                assert not any(part.digest.not_own for part in parts)
                assert all(former.keys.end == latter.keys.first for former, latter in pairwise(parts))
                assert (parts[0].keys.first, parts[-1].keys.end) == (None, None)
                assert len(parts) > 1 or not rows or rows[0] < 9
                entries = [scan.read_range(part.keys, None) for part in parts]
                assert all(entry.is_own for range_entries in entries for entry in range_entries or ())
