"""The files below the warehouse are listed, in a folder and on S3."""

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.maintenance.warehouse_files import (
    UnreadableFiles,
    list_parquet_files,
    parquet_scan_sql,
    split_readable_files,
)
from synapse_lakehouse.iceberg.read import duckdb_reader
from tests.support.object_store import put_object, s3_warehouse

NAMES = ("bronze/events/data/a.parquet", "bronze/events/data/b.parquet", "left.parquet")
HALF = "bronze/events/data/half.parquet"


def parquet_bytes() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"n": [1, 2]}), stream)
    return stream.getvalue()


def check_listed_files(settings: Settings, root: str) -> None:
    with duckdb_reader.open_duckdb(settings) as connection:
        files = list_parquet_files(connection, settings)
        assert files == {
            "bronze.events.data": sorted(f"{root}/{name}" for name in (*NAMES[:2], HALF)),
            "": [f"{root}/{NAMES[2]}"],
        }
        missing = {"bronze.events.data": [*files["bronze.events.data"], f"{root}/deleted.parquet"]}
        readable, unreadable = split_readable_files(connection, settings, files | missing)
        assert unreadable == [UnreadableFiles("bronze.events.data", (f"{root}/{HALF}",))]
        readable_files = [file for table in readable.values() for file in table]
        rows = connection.execute(f"select filename, n from {parquet_scan_sql(readable_files)}").fetchall()
        assert sorted(rows) == sorted((f"{root}/{name}", n) for name in NAMES for n in (1, 2))


def test_files_of_a_folder_are_listed(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    settings = new_lake(lakehouse_warehouse=str(tmp_path / "lake [1]*"))
    # Spark and PyIceberg do not decode the URI.
    root = Path(settings.warehouse.removeprefix("file://"))
    for name in (*NAMES, HALF):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(parquet_bytes()[: 100 if name == HALF else None])
    check_listed_files(settings, str(root))


@pytest.mark.heavy
def test_files_on_s3_are_listed(new_lake: Callable[..., Settings], tmp_path: Path) -> None:
    with s3_warehouse(tmp_path) as changes:
        url = changes["lakehouse_catalog_properties"]["s3.endpoint"]
        for name in (*NAMES, HALF):
            assert put_object(f"{url}/lake/warehouse/{name}", parquet_bytes()[: 100 if name == HALF else None])
        check_listed_files(new_lake(**changes), "s3://lake/warehouse")
