"""Reconciliation compares tables with the source, and repairs differing ranges."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from pyiceberg.table import Table as IcebergTable

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import ReleaseError
from synapse_lakehouse.catalogue import Column, LoadMode, Table
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest import snapshot_session
from synapse_lakehouse.ingest.reconcile import (
    SliceComparison,
    digest_lake,
    digest_source,
    list_slices_by_age,
    reconcile_tables,
)
from synapse_lakehouse.ingest.repair import Repair
from synapse_lakehouse.local.postgres.embedded_postgres import EmbeddedServer
from synapse_lakehouse.postgres.rows.range_digest import KeySlice
from synapse_lakehouse.postgres.snapshot.snapshot import export_snapshot
from synapse_lakehouse.spark_app import SparkApp
from tests.support.small_lake import SmallLake, small_lake

COPIED = ["events", "event_json", "event_relations", "erased_users", "room_memberships", "scheduled_tasks"]

ODD = Table(
    name="odd",
    description="Values that two systems may write differently.",
    primary_key=("key", "part"),
    key_enforced=False,
    load=LoadMode.REPLACE,
    streams={},
    writer_column=None,
    columns=tuple(
        Column(name=name, data_type=kind, source_type=catalogue.POSTGRES_TYPES[kind], description=name)
        for name, kind in {
            "key": "string",
            "part": "string",
            "number": "double",
            "yes": "boolean",
            "big": "bigint",
        }.items()
    ),
)
ODD_ROWS = """
create table odd (key text, part text, number double precision, yes boolean, big bigint);
insert into odd values
  ('', null, 'NaN', true, 9223372036854775807), (null, '', 0.0, false, -9223372036854775808),
  ('N', '1:N', -0.0, null, 0),
  ('1:N', 'N', 1e300, true, null), ('é', '😀', 5e-324, true, 1), (chr(31), chr(31), '-Infinity', true, 1),
  ('a' || chr(31), 'b', 0.1, true, 1), ('a', chr(31) || 'b', 0.1, true, 1), ('twice', 'x', null, null, null),
  ('twice', 'x', null, null, null)
"""


@pytest.fixture(scope="module")
def lake(
    server: EmbeddedServer, settings: Settings, sample_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallLake]:
    with small_lake(
        server, settings, tmp_path_factory.mktemp("proven"), [*map(catalogue.load_catalogue().table, COPIED), ODD]
    ) as lake:
        with psycopg.connect(str(lake.settings.synapse_dsn)) as source:
            source.execute(ODD_ROWS.encode())
        lake.advance()
        yield lake


def test_an_exact_copy_has_no_differences(lake: SmallLake) -> None:
    app = lake.app()
    actual = lake.verify(app)
    assert {row["table_name"]: row["differing"] for row in actual} == dict.fromkeys([*COPIED, "odd"], 0)
    assert sum(row["rows"] for row in actual if row["table_name"] == "odd") == 10
    assert all(row["seconds"] >= 0 and row["compared_at"] for row in actual)


def test_differing_ranges_are_repaired_and_recorded(lake: SmallLake) -> None:
    app = lake.app()
    lake.copy(app)
    spark, event = (
        app.spark,
        lake.run_command("query", "select min(event_id) from bronze.events", "--format", "csv").stdout.split()[1],
    )
    # An incremental run finds no changes, because the source did not change.
    for name in ("events", "odd"):
        _begin_branch(app, app.catalog.load_table(f"bronze.{name}"))
    spark.sql("update bronze.events set depth = depth + 1 where stream_ordering % 500 = 0")
    spark.sql(f"delete from bronze.events where event_id = '{event}'")
    spark.sql("insert into bronze.events (event_id, room_id) values ('$nobody', '!nowhere')")
    spark.sql("delete from bronze.odd where key = 'twice'")

    actual = {row["table_name"]: row["differing"] for row in lake.verify(app)}
    assert actual["events"] > 2
    assert actual["odd"] == 1
    assert {actual[name] for name in COPIED[1:]} == {0}
    repairs = {row["table_name"]: row for row in store.read_run_rows(app.catalog, "audit.repairs", app.run.run_id)}
    assert (repairs["events"]["rows_added"], repairs["events"]["rows_removed"]) == (1, 1)
    assert repairs["events"]["rows_changed"] == actual["events"] - 2
    assert repairs["odd"]["rows_added"] == 2
    assert ("events", '{"event_id":"$nobody"}') in lake.deletions()

    lake.publish(app)
    assert lake.equals_source()


def test_a_repair_may_exceed_the_source_s_idle_timeout(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    app = lake.app()
    lake.copy(app)
    _begin_branch(app, app.catalog.load_table("bronze.odd"))
    app.spark.sql("delete from bronze.odd where key = 'twice'")

    def replace_slowly(repair: Repair, replace_ranges: Callable[[Repair], None] = Repair.replace_ranges) -> None:
        time.sleep(6)
        replace_ranges(repair)

    monkeypatch.setattr(Repair, "replace_ranges", replace_slowly)
    monkeypatch.setattr(snapshot_session, "KEEPALIVE_SECONDS", 0.3)
    with export_snapshot(lake.settings, lake.declared) as (connection, snapshot):
        connection.execute("set idle_in_transaction_session_timeout = '4s'")
        reconcile_tables(app, lake.declared, connection, snapshot)
    repairs = {row["table_name"]: row for row in store.read_run_rows(app.catalog, "audit.repairs", app.run.run_id)}
    assert repairs["odd"]["rows_added"] == 2
    lake.publish(app)
    assert lake.equals_source()


def test_rows_written_after_the_audit_are_not_published(lake: SmallLake) -> None:
    app = lake.app()
    lake.copy(app)
    facts = [
        {"table_name": row["table_name"], "snapshot_id": row["snapshot_id"], "measured_at": datetime.now(UTC)}
        for row in lake.ledger(app)
    ]
    store.append_audit_rows(app.catalog, "audit.table_facts", facts, app.run)
    before = {name: app.catalog.load_table(f"bronze.{name}") for name in (*COPIED, "odd")}
    _begin_branch(app, before["room_memberships"])
    app.spark.sql("insert into bronze.room_memberships (event_id, room_id) values ('$unaudited', '!nowhere')")
    with pytest.raises(ReleaseError, match=r"bronze\.room_memberships"):
        lake.publish(app)
    for name, table in before.items():
        current = app.catalog.load_table(f"bronze.{name}")
        assert current.metadata.current_snapshot_id == table.metadata.current_snapshot_id
        assert app.run.tag not in current.refs()
    app.spark.sql(f"alter table bronze.room_memberships drop branch {app.run.branch}")
    lake.publish(app)
    assert lake.equals_source()


def test_reconciliation_keeps_its_time_budget(lake: SmallLake) -> None:
    app = lake.app()
    with export_snapshot(lake.settings, lake.declared) as (connection, _):
        table = lake.declared.table("event_json")
        (slice_with_timeout,) = digest_source(
            connection, [SliceComparison(table, KeySlice(0, 1)), SliceComparison(table, KeySlice(0, 1))], 0.001
        )
        assert slice_with_timeout.source is None
        assert slice_with_timeout.seconds < 1
        slices = digest_source(connection, [SliceComparison(table, KeySlice(number, 4)) for number in range(4)], 60)
        digest_lake(app.spark, slices)
        assert [unit.differing for unit in slices] == [[], [], [], []]
        assert len({name for unit in slices for name in unit.lake}) > 1000
        timeout = connection.execute("select current_setting('statement_timeout')").fetchone()
        assert timeout == ("1h",)
        old_row = {
            "slice": 0,
            "slices": 1,
            "differing": 0,
            "seconds": 0.1,
            "compared_at": datetime(2000, 1, 1, tzinfo=UTC),
        }
        slow_row = {"differing": None, "seconds": 31.0, "compared_at": datetime.now(UTC)}
        store.append_audit_rows(
            app.catalog,
            "audit.reconciliation",
            [old_row | {"table_name": "odd"}, old_row | slow_row | {"table_name": "events"}],
        )
        ordered_slices = list_slices_by_age(app, lake.declared, connection)
        assert [unit.part.of for unit in ordered_slices if unit.table.name == "events"] == [2, 2]
        assert [unit.table.name for unit in ordered_slices[-2:]] == ["events"] * 2, (
            "the halves of the slow slice come last"
        )
        assert all(31 < unit.seconds < 60 for unit in ordered_slices[-2:]), (
            "each half needs more time than the slow slice had"
        )
        app_with_more_time = replace(app, settings=app.settings.model_copy(update={"lakehouse_parity_seconds": 600}))
        ordered_slices = list_slices_by_age(app_with_more_time, lake.declared, connection)
        assert [unit.part.of for unit in ordered_slices if unit.table.name == "events"] == [1], (
            "with more time, the slice is not halved"
        )
        expensive_slices = [replace(ordered_slices[0], seconds=0.0), replace(ordered_slices[1], seconds=50.0)]
        assert digest_source(connection, expensive_slices, 40) == expensive_slices[:1]


def _begin_branch(app: SparkApp, table: IcebergTable) -> None:
    """Create the run's branch of ``table`` at its current snapshot."""
    snapshot = table.metadata.current_snapshot_id
    assert snapshot
    table.manage_snapshots().create_branch(snapshot, app.run.branch).commit()
