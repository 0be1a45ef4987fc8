"""Maintenance on a few real tables: the copy is proven and mended, and what Synapse lost leaves the files."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from synapse_lakehouse import catalogue
from synapse_lakehouse.bronze import attempts
from synapse_lakehouse.bronze.parity import Unit, asked, digest_in_lake, in_turn, verify_tables
from synapse_lakehouse.bronze.repair import Repair
from synapse_lakehouse.catalogue import Column, Load, Table
from synapse_lakehouse.embedded import sample
from synapse_lakehouse.embedded.postgres import Server
from synapse_lakehouse.lake import audit, tables
from synapse_lakehouse.lake.catalog import COMMANDS
from synapse_lakehouse.lake.housekeeping import SharedWarehouse, forget_commands, kept_releases
from synapse_lakehouse.lake.lease import Lease, holding, trim
from synapse_lakehouse.lake.release import ReleaseError
from synapse_lakehouse.settings import Settings
from synapse_lakehouse.source.parity import Slice
from synapse_lakehouse.source.snapshot import exported
from tests.advancing import advancing
from tests.small_lake import SmallLake

ERIN, ALICE, ELIZA, LOST = (f"@{name}:synapse.example" for name in ("erin", "alice", "eliza", "lost"))
HEAVY = ["events", "event_json", "event_relations", "erased_users", "room_memberships", "scheduled_tasks"]

ODD = Table(
    name="odd",
    description="Values that two systems may write differently.",
    primary_key=("key", "part"),
    key_enforced=False,
    load=Load.REPLACE,
    streams={},
    writer_column=None,
    columns=tuple(
        Column(name=name, data_type=kind, source_type=catalogue.POSTGRES_TYPES[kind], description=name)  # type: ignore[arg-type]
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
    server: Server, settings: Settings, sample_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallLake]:
    server.tool("createdb", "--template", sample.DATABASE, "maintained_source")
    server.create_database("maintained_lake")
    own = settings.model_copy(
        update={
            "synapse_dsn": server.dsn("maintained_source"),
            "lakehouse_catalog_uri": server.dsn("maintained_lake"),
            "lakehouse_warehouse": str(tmp_path_factory.mktemp("maintained")),
        }
    )
    with psycopg.connect(str(own.synapse_dsn)) as connection:
        connection.execute(ODD_ROWS.encode())
    full = catalogue.load()
    with advancing(own) as started:
        small = SmallLake(started.settings)
        small.declared = full.model_copy(update={"tables": (*map(full.table, HEAVY), ODD)})
        small.advance()
        yield small
    server.tool("dropdb", "--force", "maintained_source")
    server.tool("dropdb", "--force", "maintained_lake")


@pytest.fixture
def source(lake: SmallLake) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        yield connection


def test_an_exact_copy_is_proven(lake: SmallLake) -> None:
    app = lake.app()
    found = lake.verify(app)
    assert {row["table_name"]: row["differing"] for row in found} == dict.fromkeys([*HEAVY, "odd"], 0)
    assert sum(row["rows"] for row in found if row["table_name"] == "odd") == 10
    assert all(row["seconds"] >= 0 and row["compared_at"] for row in found)


def test_what_differs_is_read_again_and_recorded(lake: SmallLake) -> None:
    app = lake.app()
    lake.copy(app)
    spark, event = (
        app.spark,
        lake.ask("query", "select min(event_id) from bronze.events", "--format", "csv").stdout.split()[1],
    )
    # No increment would see this: the source did not change.
    for name in ("events", "odd"):
        snapshot = app.catalog.load_table(f"bronze.{name}").metadata.current_snapshot_id
        app.catalog.load_table(f"bronze.{name}").manage_snapshots().create_branch(snapshot, app.run.branch).commit()
    spark.sql("update bronze.events set depth = depth + 1 where stream_ordering % 500 = 0")
    spark.sql(f"delete from bronze.events where event_id = '{event}'")
    spark.sql("insert into bronze.events (event_id, room_id) values ('$nobody', '!nowhere')")
    spark.sql("delete from bronze.odd where key = 'twice'")

    found = {row["table_name"]: row["differing"] for row in lake.verify(app)}
    assert found["events"] > 2
    assert found["odd"] == 1
    assert {found[name] for name in HEAVY[1:]} == {0}
    repairs = {row["table_name"]: row for row in audit.of_run(app.catalog, "audit.repairs", app.run.run_id)}
    assert (repairs["events"]["rows_added"], repairs["events"]["rows_removed"]) == (1, 1)
    assert repairs["events"]["rows_changed"] == found["events"] - 2
    assert repairs["odd"]["rows_added"] == 2
    assert ("events", '{"event_id":"$nobody"}') in lake.deletions()

    lake.publish(app)
    assert lake.equal_to_source()


def test_a_repair_takes_longer_than_the_source_lets_a_session_idle(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = lake.app()
    lake.copy(app)
    snapshot = app.catalog.load_table("bronze.odd").metadata.current_snapshot_id
    app.catalog.load_table("bronze.odd").manage_snapshots().create_branch(snapshot, app.run.branch).commit()
    app.spark.sql("delete from bronze.odd where key = 'twice'")

    def slowly(repair: Repair, do: Callable[[Repair], None] = Repair.do) -> None:
        time.sleep(3)
        do(repair)

    monkeypatch.setattr(Repair, "do", slowly)
    monkeypatch.setattr(attempts, "PING_SECONDS", 0.3)
    with exported(lake.settings, lake.declared) as (connection, taken):
        connection.execute("set idle_in_transaction_session_timeout = '1500ms'")
        verify_tables(app, lake.declared, connection, taken)
    repairs = {row["table_name"]: row for row in audit.of_run(app.catalog, "audit.repairs", app.run.run_id)}
    assert repairs["odd"]["rows_added"] == 2
    lake.publish(app)
    assert lake.equal_to_source()


def test_what_was_written_after_the_audit_is_not_published(lake: SmallLake) -> None:
    app = lake.app()
    lake.copy(app)
    measured = [
        {"table_name": row["table_name"], "snapshot_id": row["snapshot_id"], "measured_at": datetime.now(UTC)}
        for row in lake.ledger(app)
    ]
    audit.append(app.catalog, "audit.table_facts", measured, app.run)
    before = {name: app.catalog.load_table(f"bronze.{name}") for name in (*HEAVY, "odd")}
    table = before["room_memberships"]
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, app.run.branch).commit()
    app.spark.sql("insert into bronze.room_memberships (event_id, room_id) values ('$unaudited', '!nowhere')")
    with pytest.raises(ReleaseError, match=r"bronze\.room_memberships .* is not what was measured"):
        lake.publish(app)
    for name, table in before.items():
        now = app.catalog.load_table(f"bronze.{name}")
        assert now.metadata.current_snapshot_id == table.metadata.current_snapshot_id
        assert app.run.tag not in now.refs()
    app.spark.sql(f"alter table bronze.room_memberships drop branch {app.run.branch}")
    lake.publish(app)
    assert lake.equal_to_source()


def test_the_source_is_asked_no_longer_than_the_budget_allows_and_tables_take_turns(lake: SmallLake) -> None:
    app = lake.app()
    with exported(lake.settings, lake.declared) as (connection, _):
        table = lake.declared.table("event_json")
        (cut_off,) = asked(connection, [Unit(table, Slice(0, 1)), Unit(table, Slice(0, 1))], 0.001)
        assert cut_off.source is None
        assert cut_off.seconds < 1
        again = asked(connection, [Unit(table, Slice(number, 4)) for number in range(4)], 60)
        digest_in_lake(app.spark, again)
        assert [unit.differing for unit in again] == [[], [], [], []]
        assert len({name for unit in again for name in unit.lake}) > 1000
        timeout = connection.execute("select current_setting('statement_timeout')").fetchone()
        assert timeout == ("1h",)
        old = {"slice": 0, "slices": 1, "differing": 0, "seconds": 0.1, "compared_at": datetime(2000, 1, 1, tzinfo=UTC)}
        slow = {"differing": None, "seconds": 31.0, "compared_at": datetime.now(UTC)}
        audit.append(app.catalog, "audit.parity", [old | {"table_name": "odd"}, old | slow | {"table_name": "events"}])
        turns = in_turn(app, lake.declared, connection)
        assert [unit.part.of for unit in turns if unit.table.name == "events"] == [2, 2]
        assert [unit.table.name for unit in turns[-2:]] == ["events"] * 2, "its halves wait for all others"
        assert all(31 < unit.seconds < 60 for unit in turns[-2:]), "and need more than what it had"
        richer = replace(app, settings=app.settings.model_copy(update={"lakehouse_parity_seconds": 600}))
        turns = in_turn(richer, lake.declared, connection)
        assert [unit.part.of for unit in turns if unit.table.name == "events"] == [1], "it had too little then"
        dear = [replace(turns[0], seconds=0.0), replace(turns[1], seconds=50.0)]
        assert asked(connection, dear, 40) == dear[:1]


def test_a_table_that_cannot_be_compacted_keeps_no_other_from_being_looked_after(
    lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    for name in ("events", "room_memberships"):
        source.execute(f"delete from {name} where ctid = (select min(ctid) from {name})".encode())
    lake.advance()
    catalog = lake.app().catalog
    damaged = Path(
        next(iter(catalog.load_table("bronze.events").scan().plan_files())).file.file_path.removeprefix("file:")
    )
    whole, releases = damaged.read_bytes(), len(audit.releases(catalog))
    damaged.write_bytes(b"\0" * len(whole))
    try:
        with pytest.raises(Py4JJavaError):
            lake.maintain()
        marked = {
            name: len(
                [one for task in catalog.load_table(f"bronze.{name}").scan().plan_files() for one in task.delete_files]
            )
            for name in ("events", "room_memberships")
        }
        assert marked["room_memberships"] == 0 < marked["events"]
        assert len(audit.releases(catalog)) == releases + 1
    finally:
        damaged.write_bytes(whole)
    lake.maintain()
    assert lake.equal_to_source()


def test_files_beside_those_of_another_lake_are_not_swept(lake: SmallLake) -> None:
    catalog = lake.app().catalog
    mine, other = (catalog.load_table(f"bronze.{name}") for name in ("events", "room_memberships"))
    folder, foreign = (Path(one.metadata_location.removeprefix("file:")) for one in (mine, other))
    stray = folder.parents[1] / "data" / "of_the_other_lake.parquet"
    stray.write_bytes(b"data")
    os.utime(stray, (0, 0))
    there = folder.with_name(f"other-{foreign.name}")
    shutil.copy(foreign, there)
    with pytest.raises(SharedWarehouse, match=f"{there.name} is of another table"):
        lake.maintain()
    assert stray.exists()
    there.unlink()
    lake.maintain()
    assert not stray.exists()


@pytest.mark.heavy
def test_what_synapse_lost_leaves_the_files_and_nothing_else_changes(
    lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    code, before = lake.prove(ERIN)
    assert code == 3
    messages = before["bronze.event_json", "message content"]["rows"]
    assert messages > 50
    old_file = next(
        (Path(lake.settings.warehouse.removeprefix("file://")) / "bronze/event_json/data").glob("*.parquet")
    )
    _prune(source, "limit 5")
    purged = [
        row[0]
        for row in source.execute(
            "select event_id from events where sender = %s and type = 'm.room.message' and not exists"
            " (select from event_relations r where r.event_id = events.event_id) limit 7", [ALICE]
        )
    ]  # fmt: skip
    for name in ("events", "event_json"):
        source.execute(f"delete from {name} where event_id = any(%s)", [purged])
    lake.advance()

    code, after = lake.prove(ERIN)
    assert code == 1
    assert after["bronze.event_json", "message content"]["rows"] == messages - 5
    former = after["bronze.event_json", "former message content"]
    assert former["in_other_files"] == 5
    assert "earlier release" in former["why"]
    assert "marked as deleted" in former["why"]
    assert after["bronze.event_json", "content of purged events"]["in_other_files"] == 7

    stray = old_file.with_name("stray.parquet")
    shutil.copy(old_file, stray)
    failed = lake.app()
    source.execute("update events set depth = depth + 1 where sender = %s", [ALICE])
    lake.copy(failed)
    lake.maintain(days=30)
    assert lake.ask("query", "from bronze.events", "--release", "1").exit_code == 0
    assert stray.exists()
    assert lake.prove(ERIN)[0] == 1
    lake.maintain()

    code, after = lake.prove(ERIN)
    assert (code, after["bronze.event_json", "message content"]["rows"]) == (3, messages - 5)
    assert ("bronze.event_json", "former message content") not in after
    assert not stray.exists()
    assert "If its snapshot has been expired" in lake.ask("query", "from bronze.events", "--release", "1").stderr
    assert json.loads(lake.ask("branches", "--format", "json").stdout) == []
    extents = {row["extent"] for row in lake.advance().values()}
    assert extents == {"nothing", "changes"}
    assert lake.equal_to_source()

    _prune(source, "")
    lake.advance()
    lake.maintain()
    code, after = lake.prove(ERIN)
    assert code == 0
    assert {what for _, what in after} == {"ids and membership"}
    assert lake.equal_to_source()


def test_who_is_not_erased_gets_no_proof(lake: SmallLake) -> None:
    done = lake.ask("prove-erased", ELIZA)
    assert done.exit_code == 1
    assert "not on record as erased" in done.stderr
    assert "reactivated" in done.stderr


def test_a_message_without_its_row_of_events_is_known_by_the_sender_in_its_json(
    lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    source.execute("insert into erased_users values (%s)", [LOST])
    source.execute(
        "insert into event_json (event_id, room_id, internal_metadata, json, format_version)"
        " select '$alone', room_id, internal_metadata, %s, format_version from event_json limit 1",
        [json.dumps({"type": "m.room.message", "sender": LOST, "content": {"body": "still here"}})],
    )
    lake.advance()
    code, found = lake.prove(LOST)
    assert code == 3
    assert found["bronze.event_json", "message content"]["rows"] == 1


def test_what_the_source_left_of_a_purged_event_is_no_fault_of_the_lake(
    lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    source.execute("insert into erased_users values (%s) on conflict do nothing", [LOST])
    source.execute("insert into event_relations values ('$purged', '$other', 'm.annotation', 'aye')")
    lake.advance()
    code, found = lake.prove(LOST)
    assert code == 3
    left = found["bronze.event_relations", "content without its event"]
    assert (left["rows"], left["in_other_files"]) == (1, 0)
    assert "in Synapse's database" in left["why"]
    source.execute("delete from event_relations where event_id = '$purged'")
    lake.advance()
    code, found = lake.prove(LOST)
    assert code == 1
    assert found["bronze.event_relations", "content of purged events"]["in_other_files"] == 1
    lake.maintain()
    assert not any(what.startswith("content") for _, what in lake.prove(LOST)[1])


def test_a_half_written_file_is_no_traceback_and_no_proof(lake: SmallLake) -> None:
    folder = Path(lake.settings.warehouse.removeprefix("file://")) / "bronze/event_json/data"
    whole = next(folder.glob("*.parquet")).read_bytes()
    half = folder / "half.parquet"
    half.write_bytes(whole[: len(whole) // 2])
    try:
        code, found = lake.prove(LOST)
        assert code == 1
        assert "half.parquet" in found["bronze.event_json", "file that cannot be read"]["why"]
        assert found["bronze.event_json", "message content"]["rows"] == 1, "the others were searched"
        assert "Not proven: 1 file in the warehouse cannot be read" in lake.ask("prove-erased", LOST).stdout
    finally:
        half.unlink()
    assert lake.prove(LOST)[0] == 3


def test_the_log_of_leases_is_trimmed_and_the_lease_goes_on(lake: SmallLake) -> None:
    catalog = lake.app().catalog
    lease = Lease(catalog, "somebody", "", 300)
    lease.acquire()
    lease.renew()
    trim(catalog, datetime.now(UTC) - timedelta(days=1))
    assert catalog.load_table("audit.leases").scan().to_arrow().num_rows >= 2
    trim(catalog, datetime.now(UTC))
    assert catalog.load_table("audit.leases").scan().to_arrow().num_rows == 0
    held = holding(catalog)
    assert held is not None
    assert held.holder == "somebody"
    lease.renew()
    lease.release()
    assert holding(catalog) is None


def test_old_commands_go_and_a_tap_s_last_positions_stay(lake: SmallLake) -> None:
    catalog, now = lake.app().catalog, datetime.now(UTC)
    tables.ensure_commands(catalog)
    heard = catalog.load_table(COMMANDS)
    for dialect, said, days in [
        ("redis", "RDATA", 40), ("redis", "TAP", 39), ("redis", "TAP", 1), ("redis", "RDATA", 1),
        ("tokens", "RDATA", 50), ("tokens", "TAP", 49), ("tokens", "TAP", 48),
    ]:  # fmt: skip
        row = {"received_at": now - timedelta(days=days), "source": "x", "dialect": dialect, "command": said}
        heard.append(pa.Table.from_pylist([row], schema=tables.COMMANDS_SCHEMA))
    forget_commands(lake.app().spark, now - timedelta(days=30))
    left = catalog.load_table(COMMANDS).scan().to_arrow().to_pylist()
    assert sorted((row["dialect"], row["command"], (now - row["received_at"]).days) for row in left) == [
        ("redis", "RDATA", 1), ("redis", "TAP", 1), ("tokens", "TAP", 48)
    ]  # fmt: skip
    lake.app().spark.sql(f"drop table {COMMANDS} purge")
    tables.ensure_commands(catalog)


def test_a_branch_is_given_up_where_nothing_was_ever_published(lake: SmallLake) -> None:
    catalog = lake.app().catalog
    catalog.create_table("gold.never_published", pa.schema([("a", pa.int64())]), properties=tables.BRANCHED)
    app = lake.app()
    app.spark.sql("insert into gold.never_published values (1)")
    assert catalog.load_table("gold.never_published").refs().keys() == {app.run.branch}
    lake.maintain()
    table = catalog.load_table("gold.never_published")
    assert table.refs() == {}
    assert table.snapshots() == []
    catalog.drop_table("gold.never_published")


def test_the_latest_release_stays_however_old(lake: SmallLake) -> None:
    published = audit.releases(lake.app().catalog)
    assert kept_releases(published, datetime.now(UTC)) == published[-1:]
    assert kept_releases(published, datetime.now(UTC) - timedelta(days=1)) == published
    assert kept_releases([], datetime.now(UTC)) == []


def _prune(source: psycopg.Connection[tuple[Any, ...]], limit: str) -> None:
    """Leave of messages what a redaction leaves."""
    source.execute(
        f"""
        update event_json set json = (json::jsonb || '{{"content": {{}}}}')::text where event_id in (
            select event_id from events
            where sender = '{ERIN}' and state_key is null and type <> 'm.room.redaction' order by event_id {limit})
        """.encode()
    )
