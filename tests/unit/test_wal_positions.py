"""After a restore of the source to an earlier state, copies of a later state are not used."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyiceberg.catalog.memory import InMemoryCatalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.ingest.baseline import read_valid_wal_positions
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

DAY = datetime(2026, 5, 1, tzinfo=UTC)


def test_positions_are_valid_unless_a_later_one_is_behind(tmp_path: Path) -> None:
    lake = InMemoryCatalog("lake", warehouse=tmp_path.as_uri())
    tables.ensure_audit_tables(lake)
    snapshots = [
        ("published", 80, 1), ("died", 100, 1), ("took over", 90, 1), ("took over", 130, 1), ("elsewhere", 10, 2),
    ]  # fmt: skip
    for minute, (run_id, lsn, timeline) in enumerate(snapshots):
        row = _position_columns(lsn, timeline) | {"run_id": run_id, "taken_at": DAY + timedelta(minutes=minute)}
        store.append_audit_rows(lake, "audit.snapshots", [row])
    store.append_audit_rows(lake, "audit.snapshots", [{"run_id": "of an earlier version", "taken_at": DAY}])
    expected = {("0/50", 1), ("0/5A", 1), ("0/82", 1), ("0/A", 2)}
    assert {(position.wal_lsn, position.timeline) for position in read_valid_wal_positions(lake)} == expected

    # The same position again, in a rewritten log.
    repeated_row = _position_columns(100, 1) | {"run_id": "again", "taken_at": DAY + timedelta(hours=1)}
    store.append_audit_rows(lake, "audit.snapshots", [repeated_row])
    assert "0/64" not in {position.wal_lsn for position in read_valid_wal_positions(lake)}


def test_main_and_state_databases_have_separate_positions(tmp_path: Path) -> None:
    lake = InMemoryCatalog("lake", warehouse=tmp_path.as_uri())
    tables.ensure_audit_tables(lake)
    # Main is read from the primary, and state from a standby that is behind it.
    for minute, (main, state) in enumerate([(100, 80), (120, 90), (140, 85), (160, 130)]):
        taken_at = DAY + timedelta(minutes=minute)
        row = _position_columns(main, 1) | {"run_id": f"run {minute}", "taken_at": taken_at, "state_snapshot": None}
        row["state_snapshot"] = _position_columns(state, 1) | {"taken_at": taken_at + timedelta(seconds=1)}
        store.append_audit_rows(lake, "audit.snapshots", [row])
    valid = {int(position.wal_lsn.partition("/")[2], 16) for position in read_valid_wal_positions(lake)}
    assert valid == {100, 120, 140, 160, 80, 85, 130}, "only position 90 of state was undone"


def _position_columns(lsn: int, timeline: int) -> dict[str, Any]:
    ids = {"snapshot_xmin": lsn, "snapshot_xmax": lsn, "system_identifier": 1, "database_oid": 2}
    return ids | {"timeline": timeline, "wal_lsn": f"0/{lsn:X}"}


def test_a_server_that_started_earlier_is_another_server() -> None:
    earlier, later = "2026-05-01T10:00:00.000000", "2026-05-02T10:00:00.000000"
    copy_position = WalPosition(1, 2, 1, "0/50", later)
    for started_at, continues in ((earlier, False), (later, True), (None, True)):
        assert WalPosition(1, 2, 1, "0/60", started_at).continues(copy_position) is continues
    assert WalPosition(1, 2, 1, "0/60", later).continues(WalPosition(1, 2, 1, "0/50", earlier)), "a restart"
    assert WalPosition(1, 2, 1, "0/60", earlier).continues(WalPosition(1, 2, 1, "0/50")), (
        "no start time, as of an earlier version or a standby"
    )
