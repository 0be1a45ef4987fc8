"""Sizes of every relation, the database, replication slots and the lake are measured and recorded."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from synapse_lakehouse.alerts import incident_log
from synapse_lakehouse.alerts.incidents import IncidentKind
from synapse_lakehouse.audit import store
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.local.postgres.embedded_postgres import run_server
from synapse_lakehouse.orchestration import run_measurements
from synapse_lakehouse.postgres import relation_sizes
from synapse_lakehouse.postgres.relation_size import RelationSize
from synapse_lakehouse.postgres.relation_sizes import read_relation_sizes
from tests.conftest import use_settings
from tests.support.reader_role import reader_role

RUN = Run("run", datetime(2026, 11, 17, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC))
DAY, MIB, GIB = timedelta(days=1), 2**20, 2**30
PLANTED = [
    ("table", "public", "events", MIB, GIB, None),
    ("database", None, "example", 2 * MIB, 0, 1000 * MIB),
    ("lake", None, "warehouse", MIB, 0, 4 * MIB),
]
"""Kind, schema, name, growth a day, additional growth a day in the last week, free bytes."""
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
def reader_settings(settings: Settings, source_copy: str) -> Iterator[Settings]:
    """Yield settings with a role that has only the documented grants."""
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute(RELATIONS.encode())
    with reader_role(settings, source_copy) as role:
        yield settings.model_copy(update={"synapse_dsn": role.dsn})


def test_the_reader_measures_every_relation(reader_settings: Settings, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        # Autovacuum would add a free space map between the two measurements.
        owner.execute("vacuum")
        sizes = sizes_by_name(reader_settings)
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
    table = sizes["other", "Über alles"]
    assert table.kind == "table"
    assert (table.bytes or 0) > 1_000_000
    assert (table.live_rows, table.vacuum_threshold, table.autovacuum_enabled) == (10, 7, False)
    assert 0 < (table.transaction_id_age or 0) < (table.freeze_max_age or 0) == 200_000_000
    events = sizes["public", "events"]
    assert events.autovacuum_enabled
    database = next(size for size in sizes.values() if size.kind == "database")
    assert (database.bytes or 0) > sum(size.bytes or 0 for size in sizes.values() if size.schema_name)


def test_dead_rows_and_vacuums_are_measured(reader_settings: Settings, source_copy: str) -> None:
    with psycopg.connect(source_copy, autocommit=True) as owner:
        owner.execute('update other."Über alles" set id = id + 100; select pg_stat_force_next_flush()')
        before = sizes_by_name(reader_settings)["other", "Über alles"]
        owner.execute('vacuum other."Über alles"')
        after = sizes_by_name(reader_settings)["other", "Über alles"]
    assert (before.dead_rows, before.last_vacuum) == (10, None)
    assert (after.dead_rows, after.last_autovacuum) == (0, None)
    assert after.last_vacuum is not None


@pytest.mark.parametrize("locked", ["lock table events in access exclusive mode", "reindex index events_order_room"])
def test_a_locked_relation_has_no_size(reader_settings: Settings, source_copy: str, locked: str) -> None:
    with psycopg.connect(source_copy) as other:
        other.execute(locked.encode())
        sizes = sizes_by_name(reader_settings)
    assert sizes["public", "events"].bytes is None
    assert sizes["public", "events"].live_rows is not None
    assert sizes["public", "event_json"].bytes is not None


def test_a_later_lock_leaves_all_relations_without_a_size(
    reader_settings: Settings, source_copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each measurement meets a lock that pg_locks does not show, like one that is taken after pg_locks was read.
    monkeypatch.setattr(relation_sizes, "_RELATIONS", relation_sizes._RELATIONS.replace("'AccessExclusiveLock'", "''"))
    with psycopg.connect(source_copy) as other:
        other.execute("lock table events in access exclusive mode")
        sizes = sizes_by_name(reader_settings)
    assert {size.bytes for size in sizes.values() if size.schema_name} == {None}
    assert any(size.kind == "database" and size.bytes for size in sizes.values())


def test_slots_and_free_space_are_recorded(
    settings: Settings, new_lake: Callable[..., Settings], tmp_path: Path
) -> None:
    with run_server(tmp_path / "primary", options=["wal_level=logical"]) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as owner:
            owner.execute("select pg_create_physical_replication_slot('standby', true)")
            owner.execute("create table filler as select repeat('x', 1000) from generate_series(1, 10000)")
        changed_settings = new_lake(
            synapse_dsn=server.dsn(), synapse_server_name="example.org", lakehouse_source_disk_bytes=10**9
        )
        rows = record(changed_settings)
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
    """Record the sizes as a run does, and return the rows by name."""
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        run_measurements.record_sizes(settings, RUN)
        rows = catalog.load_table("audit.relation_sizes").scan().to_arrow().to_pylist()
    return {row["name"]: row for row in rows}


def test_planted_growth_is_shown_and_raises_an_alert(
    new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = new_lake(synapse_dsn="postgresql://127.0.0.1:1/none", synapse_server_name="example.org")
    now = datetime.now(UTC) - timedelta(minutes=1)
    rows = [
        {"kind": kind, "schema_name": schema, "name": name, "free_bytes": free, "measured_at": now - day * DAY,
         "bytes": 10 * GIB - day * per_day + max(0, 7 - day) * faster}
        for kind, schema, name, per_day, faster, free in PLANTED for day in range(36)
    ]  # fmt: skip
    with closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        store.append_audit_rows(catalog, "audit.relation_sizes", rows, RUN)
        run_measurements.report_sizes(settings)
        incidents = {(event.kind, event.subject) for event in incident_log.read_incident_log(catalog).events}
    assert incidents == {
        (IncidentKind.GROWTH_CHANGED, "table public.events"), (IncidentKind.DISK_FILLING, "lake warehouse"),
    }  # fmt: skip
    use_settings(settings, monkeypatch)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["sizes"])
    assert result.exit_code == 0, result.output
    assert "public.events" in result.output
    by_name = {row["name"]: row for row in json.loads(CliRunner().invoke(app, ["sizes", "--format", "json"]).stdout)}
    assert by_name["events"]["growth_bytes_per_day"] == pytest.approx(MIB + GIB, rel=1e-6)
    assert by_name["events"]["growth_before"] == pytest.approx(MIB, rel=1e-6)
    assert by_name["example"]["growth_bytes_per_day"] == pytest.approx(2 * MIB, rel=1e-6)
    assert by_name["example"]["full_in_days"] == pytest.approx(500, rel=1e-3)
    assert by_name["warehouse"]["full_in_days"] == pytest.approx(4, rel=1e-3)
    assert by_name["warehouse"]["full_in_days_earliest"] == pytest.approx(4, rel=1e-3)


def test_the_command_fails_on_a_lake_without_sizes(
    new_lake: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_settings(new_lake(synapse_dsn="postgresql://127.0.0.1:1/none"), monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["sizes"]).exit_code == 1
