"""Maintenance compacts tables, and deletes orphan files, erased content and old log rows."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.lease.lease import Lease, trim_lease_log
from synapse_lakehouse.iceberg.maintenance.maintenance import delete_old_commands, select_retained_releases
from synapse_lakehouse.iceberg.maintenance.orphan_files import SharedWarehouseError
from synapse_lakehouse.iceberg.write import tables
from tests.support.runs import lease_holder
from tests.support.small_lake import SmallLake

ERIN, ALICE, ELIZA, LOST = (f"@{name}:synapse.example" for name in ("erin", "alice", "eliza", "lost"))
TABLES = ["events", "event_json", "event_relations", "erased_users", "room_memberships", "scheduled_tasks"]


@pytest.fixture
def source(lake: SmallLake) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        yield connection


def test_other_tables_are_maintained_if_one_is_damaged(
    lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    for name in ("events", "room_memberships"):
        source.execute(f"delete from {name} where ctid = (select min(ctid) from {name})".encode())
    lake.advance()
    catalog = lake.app().catalog
    damaged_file = Path(
        next(iter(catalog.load_table("bronze.events").scan().plan_files())).file.file_path.removeprefix("file:")
    )
    content, releases = damaged_file.read_bytes(), len(store.read_releases(catalog))
    damaged_file.write_bytes(b"\0" * len(content))
    try:
        with pytest.raises(Py4JJavaError):
            lake.maintain()
        assert lake.count_delete_files("room_memberships") == 0 < lake.count_delete_files("events")
        assert len(store.read_releases(catalog)) == releases + 1
    finally:
        damaged_file.write_bytes(content)
    lake.maintain()
    assert lake.equals_source()


def test_files_in_a_shared_warehouse_are_not_deleted(lake: SmallLake) -> None:
    catalog = lake.app().catalog
    own_table, other_table = (catalog.load_table(f"bronze.{name}") for name in ("events", "room_memberships"))
    own_metadata, other_metadata = (
        Path(item.metadata_location.removeprefix("file:")) for item in (own_table, other_table)
    )
    foreign_file = own_metadata.parents[1] / "data" / "of_the_other_lake.parquet"
    foreign_file.write_bytes(b"data")
    os.utime(foreign_file, (0, 0))
    copy = own_metadata.with_name(f"other-{other_metadata.name}")
    shutil.copy(other_metadata, copy)
    with pytest.raises(SharedWarehouseError, match=copy.name):
        lake.maintain()
    assert foreign_file.exists()
    copy.unlink()
    lake.maintain()
    assert not foreign_file.exists()


@pytest.mark.heavy
def test_content_that_synapse_deleted_is_erased(lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]) -> None:
    code, before = lake.prove(ERIN)
    assert code == 3
    message_count = before["bronze.event_json", "message content"]["rows"]
    assert message_count > 50
    old_file = next(_json_folder(lake).glob("*.parquet"))
    _prune(source, "limit 5")
    _purge_messages(source, 7)
    lake.advance()

    code, after = lake.prove(ERIN)
    assert code == 1
    assert after["bronze.event_json", "message content"]["rows"] == message_count - 5
    former_content = after["bronze.event_json", "former message content"]
    assert former_content["in_other_files"] == 5
    assert "earlier release" in former_content["reason"]
    assert "marked as deleted" in former_content["reason"]
    assert after["bronze.event_json", "content of purged events"]["in_other_files"] == 7

    orphan = old_file.with_name("orphan.parquet")
    shutil.copy(old_file, orphan)
    failed_app = lake.app()
    source.execute("update events set depth = depth + 1 where sender = %s", [ALICE])
    lake.copy(failed_app)
    lake.maintain(days=30)
    assert lake.run_command("query", "from bronze.events", "--release", "1").exit_code == 0
    assert orphan.exists()
    assert lake.prove(ERIN)[0] == 1
    lake.maintain()

    code, after = lake.prove(ERIN)
    assert (code, after["bronze.event_json", "message content"]["rows"]) == (3, message_count - 5)
    assert ("bronze.event_json", "former message content") not in after
    assert not orphan.exists()
    assert (
        "If its snapshot has been expired" in lake.run_command("query", "from bronze.events", "--release", "1").stderr
    )
    assert json.loads(lake.run_command("branches", "--format", "json").stdout) == []
    extents = {row["extent"] for row in lake.advance().values()}
    assert extents == {"none", "changed"}
    assert lake.equals_source()

    _prune(source, "")
    lake.advance()
    lake.maintain()
    code, after = lake.prove(ERIN)
    assert code == 0
    assert {kind for _, kind in after} == {"ids and membership"}
    assert lake.equals_source()


def test_a_user_who_is_not_erased_gets_no_proof(lake: SmallLake) -> None:
    result = lake.run_command("prove-erased", ELIZA)
    assert result.exit_code == 1
    assert "is not erased" in result.stderr
    assert "reactivated" in result.stderr


def test_an_orphaned_message_is_found_by_its_sender(
    lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    source.execute("insert into erased_users values (%s)", [LOST])
    source.execute(
        "insert into event_json (event_id, room_id, internal_metadata, json, format_version)"
        " select '$alone', room_id, internal_metadata, %s, format_version from event_json limit 1",
        [json.dumps({"type": "m.room.message", "sender": LOST, "content": {"body": "still here"}})],
    )
    lake.advance()
    code, findings = lake.prove(LOST)
    assert code == 3
    assert findings["bronze.event_json", "message content"]["rows"] == 1


def test_undeleted_content_in_the_source_is_reported(
    lake: SmallLake, source: psycopg.Connection[tuple[Any, ...]]
) -> None:
    source.execute("insert into erased_users values (%s) on conflict do nothing", [LOST])
    source.execute("insert into event_relations values ('$purged', '$other', 'm.annotation', 'aye')")
    lake.advance()
    code, findings = lake.prove(LOST)
    assert code == 3
    undeleted_row = findings["bronze.event_relations", "content without its event"]
    assert (undeleted_row["rows"], undeleted_row["in_other_files"]) == (1, 0)
    assert "in Synapse's database" in undeleted_row["reason"]
    source.execute("delete from event_relations where event_id = '$purged'")
    lake.advance()
    code, findings = lake.prove(LOST)
    assert code == 1
    assert findings["bronze.event_relations", "content of purged events"]["in_other_files"] == 1
    lake.maintain()
    assert not any(kind.startswith("content") for _, kind in lake.prove(LOST)[1])


def test_an_unreadable_file_prevents_a_proof(lake: SmallLake) -> None:
    folder = _json_folder(lake)
    content = next(folder.glob("*.parquet")).read_bytes()
    truncated_file = folder / "half.parquet"
    truncated_file.write_bytes(content[: len(content) // 2])
    try:
        code, findings = lake.prove(LOST)
        assert code == 1
        assert "half.parquet" in findings["bronze.event_json", "file that cannot be read"]["reason"]
        assert findings["bronze.event_json", "message content"]["rows"] == 1, "the other files were searched"
        assert "Not proven: 1 file in the warehouse cannot be read" in lake.run_command("prove-erased", LOST).stdout
    finally:
        truncated_file.unlink()
    assert lake.prove(LOST)[0] == 3


def test_trimming_the_lease_log_keeps_the_lease(lake: SmallLake) -> None:
    catalog = lake.app().catalog
    lease = Lease(catalog, "a run", "", 300)
    lease.acquire()
    lease.renew()
    trim_lease_log(catalog, datetime.now(UTC) - timedelta(days=1))
    assert catalog.load_table("audit.leases").scan().to_arrow().num_rows >= 2
    trim_lease_log(catalog, datetime.now(UTC))
    assert catalog.load_table("audit.leases").scan().to_arrow().num_rows == 0
    assert lease_holder(lake.settings) == "a run"
    lease.renew()
    lease.release()
    assert lease_holder(lake.settings) is None


def test_old_commands_are_deleted_except_the_last_positions(lake: SmallLake) -> None:
    catalog, now = lake.app().catalog, datetime.now(UTC)
    tables.ensure_commands_table(catalog)
    commands = catalog.load_table(COMMANDS_TABLE)
    for dialect, command, days in [
        ("redis", "RDATA", 40), ("redis", "TAP", 39), ("redis", "TAP", 1), ("redis", "RDATA", 1),
        ("tokens", "RDATA", 50), ("tokens", "TAP", 49), ("tokens", "TAP", 48),
    ]:  # fmt: skip
        row = {"received_at": now - timedelta(days=days), "source": "x", "dialect": dialect, "command": command}
        commands.append(pa.Table.from_pylist([row], schema=tables.COMMANDS_SCHEMA))
    delete_old_commands(lake.app().spark, now - timedelta(days=30))
    remaining = catalog.load_table(COMMANDS_TABLE).scan().to_arrow().to_pylist()
    assert sorted((row["dialect"], row["command"], (now - row["received_at"]).days) for row in remaining) == [
        ("redis", "RDATA", 1), ("redis", "TAP", 1), ("tokens", "TAP", 48)
    ]  # fmt: skip
    lake.app().spark.sql(f"drop table {COMMANDS_TABLE} purge")
    tables.ensure_commands_table(catalog)


def test_a_branch_of_an_unpublished_table_is_dropped(lake: SmallLake) -> None:
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


def test_the_latest_release_is_retained(lake: SmallLake) -> None:
    releases = store.read_releases(lake.app().catalog)
    assert select_retained_releases(releases, datetime.now(UTC)) == releases[-1:]
    assert select_retained_releases(releases, datetime.now(UTC) - timedelta(days=1)) == releases
    assert select_retained_releases([], datetime.now(UTC)) == []


def _prune(source: psycopg.Connection[tuple[Any, ...]], limit: str) -> None:
    """Empty the content of messages, as a redaction does."""
    source.execute(
        f"""
        update event_json set json = (json::jsonb || '{{"content": {{}}}}')::text where event_id in (
            select event_id from events
            where sender = '{ERIN}' and state_key is null and type <> 'm.room.redaction' order by event_id {limit})
        """.encode()
    )


def _purge_messages(source: psycopg.Connection[tuple[Any, ...]], number: int) -> None:
    """Delete messages of ALICE to which no event relates, as a purge does."""
    purged_ids = [
        row[0]
        for row in source.execute(
            "select event_id from events where sender = %s and type = 'm.room.message' and not exists"
            " (select from event_relations r where r.event_id = events.event_id) limit %s", [ALICE, number]
        )
    ]  # fmt: skip
    for name in ("events", "event_json"):
        source.execute(f"delete from {name} where event_id = any(%s)".encode(), [purged_ids])


def _json_folder(lake: SmallLake) -> Path:
    """Return the folder of the data files of bronze.event_json."""
    return Path(lake.settings.warehouse.removeprefix("file://")) / "bronze/event_json/data"
