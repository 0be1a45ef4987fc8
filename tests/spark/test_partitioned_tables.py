"""Tables that an administrator has partitioned are copied like other tables, by the role that reads the database."""

from collections.abc import Iterator

import psycopg
import pytest

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.snapshot_session import snapshot_session
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.postgres.indexes.btree_index import read_indexes
from synapse_lakehouse.postgres.rows import page_ranges
from synapse_lakehouse.postgres.rows.heap import read_heap
from synapse_lakehouse.postgres.rows.row_counts import estimate_rows
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from tests.support.incremental_lake import IncrementalLake, Source, open_lake_of_tables
from tests.support.reader_role import reader_role

TABLES = ("event_json", "state_groups_state", "current_state_delta_stream")

PARTITIONED = """
alter table {table} rename to whole;
create table {table} (like whole including all) partition by {by};
{partitions}
insert into {table} select * from whole;
drop table whole cascade;
"""
BY_HASH = "create table {table}_{part} partition of {table} for values with (modulus 2, remainder {part}){clause};"
BY_STREAM = "create table {table}_{part} partition of {table} for values from ({first}) to ({last});"

ATTACH = """
alter table current_state_delta_stream attach partition current_state_delta_stream_1 for values from (100) to (maxvalue)
"""


def _partition(owner: Source, table: str, by: str, *partitions: str) -> None:
    owner.execute(PARTITIONED.format(table=table, by=by, partitions="\n".join(partitions)).encode())


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, source_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IncrementalLake]:
    with psycopg.connect(source_dsn, autocommit=True) as owner:
        partitions = [BY_HASH.format(table="event_json", part=part, clause="") for part in (0, 1)]
        _partition(owner, "event_json", "hash (event_id)", *partitions)
        clause = " partition by hash (state_group)"
        subpartitions = [
            BY_HASH.format(table="state_groups_state", part=0, clause=clause),
            BY_HASH.format(table="state_groups_state", part=1, clause=""),
            "create table state_groups_state_leaf partition of state_groups_state_0"
            " for values with (modulus 1, remainder 0);",
        ]
        _partition(owner, "state_groups_state", "hash (state_group)", *subpartitions)
        ranges = [
            BY_STREAM.format(table="current_state_delta_stream", part=part, first=first, last=last)
            for part, (first, last) in enumerate([("minvalue", "100"), ("100", "maxvalue")])
        ]
        _partition(owner, "current_state_delta_stream", "range (stream_id)", *ranges)
        owner.execute("analyze")
    with reader_role(settings.model_copy(update={"synapse_dsn": source_dsn}), source_dsn) as role:
        folder = tmp_path_factory.mktemp("partitioned")
        with open_lake_of_tables(TABLES, server, settings, role.dsn, folder) as lake:
            yield lake


def test_all_partitions_are_copied(lake: IncrementalLake) -> None:
    assert lake.compare_with_source() == {}
    assert {row["extent"] for row in lake.advance().values()} == {"none"}


def test_changed_rows_of_each_partition_are_copied(lake: IncrementalLake, source: Source) -> None:
    source.execute("update event_json set format_version = format_version + 1 where random() < 0.1")
    source.execute("delete from state_groups_state where state_group % 7 = 0")
    source.execute(
        "update current_state_delta_stream set stream_id = stream_id + 100 where stream_id between 90 and 99"
    )
    assert {name: row["extent"] for name, row in lake.advance().items()} == dict.fromkeys(TABLES, "changed")
    assert lake.compare_with_source() == {}


def test_a_range_of_pages_is_read_from_all_partitions(
    lake: IncrementalLake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_ranges, "PAGES_PER_CHUNK", 8)
    source.execute("update event_json set format_version = format_version")
    row = lake.advance()["event_json"]
    assert row["extent"] == "full"
    assert len(row["ranges"]) > 10
    assert lake.compare_with_source() == {}


def test_attached_and_detached_partitions_cause_a_full_copy(lake: IncrementalLake, source: Source) -> None:
    """Their rows appear and disappear without new row versions."""
    source.execute("alter table current_state_delta_stream detach partition current_state_delta_stream_1")
    assert lake.advance()["current_state_delta_stream"]["extent"] == "full"
    assert lake.compare_with_source() == {}
    source.execute(ATTACH)
    assert lake.advance()["current_state_delta_stream"]["extent"] == "full"
    assert lake.compare_with_source() == {}


def test_a_partition_attached_during_a_copy_is_reported(lake: IncrementalLake, source: Source) -> None:
    source.execute("alter table current_state_delta_stream detach partition current_state_delta_stream_1")
    app = lake.app()
    with snapshot_session(app) as session:
        source.execute(ATTACH)
        with pytest.raises(SourceError, match="current_state_delta_stream"):
            copy_tables(session)
    lake.advance()
    assert lake.compare_with_source() == {}


def test_an_unfinished_detachment_stops_no_run(lake: IncrementalLake, source: Source, source_dsn: str) -> None:
    detach = "alter table current_state_delta_stream detach partition current_state_delta_stream_0"
    with psycopg.connect(source_dsn) as blocking_connection:
        blocking_connection.execute("select from current_state_delta_stream limit 0")
        source.execute("set statement_timeout = '2s'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            source.execute(f"{detach} concurrently")
        source.execute("reset statement_timeout")
    assert lake.advance()["current_state_delta_stream"]["extent"] == "full"
    assert lake.compare_with_source() == {}
    source.execute(f"{detach} finalize")
    lake.advance()
    assert lake.compare_with_source() == {}


def test_a_partition_is_not_rewritten_during_a_snapshot(lake: IncrementalLake, source: Source) -> None:
    declared = catalogue.load_catalogue()
    source.execute("set lock_timeout = '500ms'")
    with export_snapshot(lake.settings, declared):
        for statement in ("truncate event_json_1", "drop table state_groups_state_leaf"):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                source.execute(statement)


def test_sizes_are_those_of_all_partitions(lake: IncrementalLake, source: Source) -> None:
    source.execute("analyze")
    (rows,) = source.execute("select count(*) from state_groups_state").fetchone() or (0,)
    (pages,) = source.execute(
        "select sum(pg_relation_size(relid)) / 8192 from pg_partition_tree('state_groups_state')"
    ).fetchone() or (0,)
    table = catalogue.load_catalogue().table("state_groups_state")
    with connect(lake.settings) as connection:
        heap = read_heap(connection, table)
        assert heap.pages == pages
        assert 0 < heap.largest_file_pages < heap.pages
        assert estimate_rows(connection, [table.name]) == {table.name: rows}
        indexes = read_indexes(connection, table)
        assert not indexes.checkable
        assert indexes.uncovered
    source.execute("vacuum full state_groups_state_leaf")
    with connect(lake.settings) as connection:
        assert read_heap(connection, table).filenodes != heap.filenodes
