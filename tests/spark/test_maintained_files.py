"""Maintenance rewrites changed tables and deletes orphan files. It changes no other files."""

import os
from pathlib import Path

import psycopg
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from synapse_lakehouse.audit import store
from synapse_lakehouse.iceberg.maintenance.orphan_files import MissingFilesError
from tests.support.small_lake import SmallLake

TABLES = ["event_relations", "room_memberships"]


def test_deleted_content_is_rewritten_before_other_rows(lake: SmallLake) -> None:
    with psycopg.connect(str(lake.settings.synapse_dsn), autocommit=True) as source:
        for name in TABLES:
            source.execute(f"delete from {name} where ctid = (select min(ctid) from {name})".encode())
    lake.advance()
    assert [lake.count_delete_files(name) for name in TABLES] == [1, 1]
    lake.maintain(days=30)
    assert [lake.count_delete_files(name) for name in TABLES] == [0, 1]
    # The latest release is also the oldest, so its deleted rows are old.
    lake.maintain()
    assert [lake.count_delete_files(name) for name in TABLES] == [0, 0]
    assert lake.equals_source()


def test_an_untouched_lake_is_not_rewritten(lake: SmallLake) -> None:
    lake.maintain()
    releases = len(store.read_releases(lake.app().catalog))
    files = {path: path.stat().st_mtime_ns for path in _list_data_files(lake)}
    lake.maintain(days=30)
    lake.maintain()
    assert {path: path.stat().st_mtime_ns for path in _list_data_files(lake)} == files
    assert len(store.read_releases(lake.app().catalog)) == releases


def test_orphan_files_stay_if_a_file_is_missing(lake: SmallLake) -> None:
    orphans = [_write_orphan(lake, name) for name in TABLES]
    moved_file = _get_folder(lake, "event_relations").joinpath("away")
    file = next(path for path in _list_data_files(lake) if path.parent == moved_file.parent and path not in orphans)
    file.rename(moved_file)
    try:
        with pytest.raises(MissingFilesError, match=file.name):
            lake.maintain()
        assert [orphan.exists() for orphan in orphans] == [True, False]
    finally:
        moved_file.rename(file)
    lake.maintain()
    assert not orphans[0].exists()
    assert lake.equals_source()


def test_damaged_metadata_stops_one_table_only(lake: SmallLake) -> None:
    orphans = [_write_orphan(lake, name) for name in TABLES]
    table = lake.app().catalog.load_table("bronze.event_relations")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = Path(snapshot.manifests(table.io)[0].manifest_path.removeprefix("file:"))
    content = manifest.read_bytes()
    manifest.write_bytes(b"damaged")
    try:
        with pytest.raises((Py4JJavaError, PySparkException)):
            lake.maintain()
        assert [orphan.exists() for orphan in orphans] == [True, False]
    finally:
        manifest.write_bytes(content)
    lake.maintain()
    assert not orphans[0].exists()


def _write_orphan(lake: SmallLake, name: str) -> Path:
    """Write an old orphan file to the folder of a table, and return its path."""
    orphan = _get_folder(lake, name) / "orphan.parquet"
    orphan.write_bytes(b"data")
    os.utime(orphan, (0, 0))
    return orphan


def _get_folder(lake: SmallLake, name: str) -> Path:
    return Path(lake.settings.warehouse.removeprefix("file://"), "bronze", name, "data")


def _list_data_files(lake: SmallLake) -> list[Path]:
    """Return the data files of bronze."""
    return list(Path(lake.settings.warehouse.removeprefix("file://"), "bronze").rglob("*.parquet"))
