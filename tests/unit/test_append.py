"""Appends to tables with many Iceberg snapshots: concurrent appends lose nothing, and old snapshots are not read."""

from typing import Any

import pyarrow as pa
import pyiceberg.table
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import update_table_metadata

from synapse_lakehouse.iceberg.write.append import append_rows

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
WITH_RETRIES = {"commit.retry.num-retries": "2", "commit.retry.min-wait-ms": "1"}
WITHOUT_RETRIES = {"commit.retry.num-retries": "0"}


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> InMemoryCatalog:
    lake = InMemoryCatalog("lake", warehouse=tmp_path_factory.mktemp("lake").as_uri())
    lake.create_namespace("audit")
    return lake


@pytest.mark.parametrize("manifest_merge", ["false", "true"])
def test_concurrent_appends_are_both_written(lake: InMemoryCatalog, manifest_merge: str) -> None:
    merge_properties = {"commit.manifest-merge.enabled": manifest_merge, "commit.manifest.min-count-to-merge": "2"}
    first = lake.create_table("audit.rows", schema=ROWS.schema, properties=WITH_RETRIES | merge_properties)
    second = lake.load_table("audit.rows")
    append_rows(first, ROWS, {"by": "first"})
    append_rows(second, ROWS.slice(1), {"by": "second"})
    table = lake.load_table("audit.rows")
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2, 2]
    assert [snapshot.summary.additional_properties["by"] for snapshot in table.snapshots() if snapshot.summary] == [
        "first",
        "second",
    ]


def test_without_retries_a_conflict_is_an_error(lake: InMemoryCatalog) -> None:
    first = lake.create_table("audit.rows", schema=ROWS.schema, properties=WITHOUT_RETRIES)
    second = lake.load_table("audit.rows")
    append_rows(first, ROWS)
    with pytest.raises(CommitFailedException):
        append_rows(second, ROWS)
    assert lake.load_table("audit.rows").scan().count() == 2


def test_old_snapshots_are_copied_a_few_times_at_most(lake: InMemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table: Table = lake.create_table("audit.rows", schema=ROWS.schema)
    metadata_updates: list[tuple[Any, ...]] = []

    def record_update(*arguments: Any, **options: Any) -> Any:
        metadata_updates.append(arguments)
        return update_table_metadata(*arguments, **options)

    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", record_update)
    append_rows(table, ROWS)
    assert 0 < len(metadata_updates) <= 4
