"""Sizes of every relation, the database, replication slots and the lake are measured and recorded."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import run_server
from synapse_lakehouse.orchestration import size_tasks
from synapse_lakehouse.postgres import relation_sizes
from synapse_lakehouse.postgres.relation_sizes import RelationSize, read_relation_sizes
from tests.support.reader_role import reader_role

RUN = Run("run", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
RELATIONS = """
create table parts (id bigint) partition by range (id);
create table part_1 partition of parts for values from (0) to (10);
insert into parts select 1 from generate_series(1, 1000);
create materialized view copies as select * from events;
create schema other;
create table other."Über alles" (id bigint primary key, long text);
alter table other."Über alles" alter column long set storage external,
  set (autovacuum_vacuum_threshold = 7, autovacuum_vacuum_scale_factor = 0, autovacuum_enabled = off);
insert into other."Über alles" select n, repeat('x', 100000) from generate_series(1, 10) n;
analyze other."Über alles";
"""


def sizes_by_name(settings: Settings) -> dict[tuple[str | None, str], RelationSize]:
    return {(size.schema_name, size.name): size for size in read_relation_sizes(settings)}


@pytest.fixture
def own(settings: Settings, source_copy: str) -> Iterator[Settings]:
    """Settings with a role that has only the documented grants."""
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(RELATIONS.encode())
    with reader_role(settings, source_copy) as role:
        yield settings.model_copy(update={"synapse_dsn": role.dsn})


def test_the_reader_measures_every_relation(own: Settings, source_copy: str) -> None:
    sizes = sizes_by_name(own)
    with psycopg.connect(source_copy) as owner:
        expected = owner.execute(
            "select nspname, relname, pg_total_relation_size(c.oid), pg_indexes_size(c.oid) from pg_class c"
            " join pg_namespace n on n.oid = relnamespace"
            " where relkind in ('r', 'm') and nspname = any('{public, other}')"
        ).fetchall()
    assert len(expected) > 100
    measured = {key: (size.bytes, size.index_bytes) for key, size in sizes.items() if key[0]}
    assert measured == {(schema, name): (total, index) for schema, name, total, index in expected}
    assert sizes["public", "part_1"].kind == "partition"
    assert sizes["public", "copies"].kind == "materialized_view"
    long = sizes["other", "Über alles"]
    assert long.kind == "table"
    assert (long.bytes or 0) > 1_000_000
    assert (long.live_rows, long.vacuum_threshold, long.autovacuum_enabled) == (10, 7, False)
    assert 0 < (long.transaction_id_age or 0) < (long.freeze_max_age or 0) == 200_000_000
    events = sizes["public", "events"]
    assert events.autovacuum_enabled
    database = next(size for size in sizes.values() if size.kind == "database")
    assert (database.bytes or 0) > sum(size.bytes or 0 for size in sizes.values() if size.schema_name)


def test_dead_rows_and_vacuums_are_measured(own: Settings, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute('update other."Über alles" set id = id + 100; select pg_stat_force_next_flush()')
        before = sizes_by_name(own)["other", "Über alles"]
        owner.execute('vacuum other."Über alles"')
        after = sizes_by_name(own)["other", "Über alles"]
    assert (before.dead_rows, before.last_vacuum) == (10, None)
    assert (after.dead_rows, after.last_autovacuum) == (0, None)
    assert after.last_vacuum is not None


@pytest.mark.parametrize("locked", ["lock table events in access exclusive mode", "reindex index events_order_room"])
def test_a_locked_relation_has_no_size(own: Settings, source_copy: str, locked: str) -> None:
    with psycopg.connect(source_copy) as other:
        other.execute(locked.encode())
        sizes = sizes_by_name(own)
    assert sizes["public", "events"].bytes is None
    assert sizes["public", "events"].live_rows is not None
    assert sizes["public", "event_json"].bytes is not None


def test_a_later_lock_leaves_all_relations_without_a_size(
    own: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each measurement meets a lock that pg_locks does not show, like one that is taken after pg_locks was read.
    monkeypatch.setattr(relation_sizes, "_RELATIONS", relation_sizes._RELATIONS.replace("'AccessExclusiveLock'", "''"))
    with psycopg.connect(source_copy) as other:
        other.execute("lock table events in access exclusive mode")
        sizes = sizes_by_name(own)
    assert {size.bytes for size in sizes.values() if size.schema_name} == {None}
    assert any(size.kind == "database" and size.bytes for size in sizes.values())


def test_slots_and_free_space_are_recorded(
    settings: Settings, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    with run_server(tmp_path / "primary", options=["wal_level=logical"]) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as owner:
            owner.execute("select pg_create_physical_replication_slot('standby', true)")
            owner.execute("create table filler as select repeat('x', 1000) from generate_series(1, 10000)")
        own = new_lake(synapse_dsn=server.dsn(), synapse_server_name="example.org", lakehouse_source_disk_bytes=10**9)
        rows = record(own)
    slot, database, lake = rows["standby"], rows["postgres"], rows["warehouse"]
    assert (slot["kind"], slot["is_active"], slot["transaction_id_age"]) == ("replication_slot", False, None)
    assert slot["bytes"] > 10_000_000
    assert database["free_bytes"] == 10**9 - database["bytes"] - slot["bytes"]
    assert lake["kind"] == "lake"
    assert 0 < lake["bytes"] < lake["free_bytes"]
    assert rows["filler"]["measured_at"] == lake["measured_at"]


def test_a_source_that_is_down_records_nothing(new_lake: Callable[..., Settings]) -> None:
    assert record(new_lake(synapse_dsn="postgresql://127.0.0.1:1/none", synapse_server_name="example.org")) == {}


def record(settings: Settings) -> dict[str, dict[str, Any]]:
    """What a run records, by name."""
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        size_tasks.record_sizes(settings, RUN)
        rows = catalog.load_table("audit.relation_sizes").scan().to_arrow().to_pylist()
    return {row["name"]: row for row in rows}
