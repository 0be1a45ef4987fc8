"""Delete orphan files: files in a table's folder to which no snapshot and no metadata of the table refers.

Spark's tasks list the files and compare them with Iceberg's metadata tables. Only orphan files reach the driver.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog import aws_keys
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, load_iceberg_table

_METADATA_FILE: Final = ".metadata.json"


class SharedWarehouseError(LakehouseError):
    """The folder of a table contains files of another table. No file was deleted in this folder."""

    def __init__(self, metadata: str) -> None:
        super().__init__(
            f"{metadata} belongs to a table of another lake, or to a table that was dropped. No orphan file was "
            "deleted in its folder. If two lakes share a warehouse, an orphan file of one lake may be data of the "
            "other. Give each lake its own LAKEHOUSE_WAREHOUSE. If there is no other lake, for example because a "
            "table was dropped and created again, delete the named file and clear the task."
        )


class MissingFilesError(LakehouseError):
    """A table refers to a file that is not in its folder. No file was deleted in this folder."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(
            f"{name} refers to the file {path}, which is not in the folder of the table, so no orphan file was "
            "deleted in that folder: the list of its files may be wrong. Restore the file from a backup of the "
            "warehouse, and clear the task."
        )


@dataclass(frozen=True)
class DeletedFiles:
    """Number and bytes of deleted files, and the errors of tables in whose folders no file was deleted."""

    files: int
    bytes: int
    failures: tuple[Exception, ...]

    def __add__(self, other: "DeletedFiles") -> "DeletedFiles":
        return DeletedFiles(self.files + other.files, self.bytes + other.bytes, self.failures + other.failures)


def delete_orphan_files(
    spark: SparkSession, io_properties: Mapping[str, str], limits: Mapping[str, datetime]
) -> DeletedFiles:
    """Delete the orphan files of each table in ``limits`` that are older than the table's limit.

    :param io_properties: properties of the catalog, without secrets.
    """
    try:
        tables = {name: load_iceberg_table(spark, name) for name in limits}
        differing = _compare_files(spark, io_properties, tables, limits).collect()
    except (Py4JJavaError, PySparkException) as failure:
        if len(limits) == 1:
            return DeletedFiles(0, 0, (failure,))
        # The metadata of a table is damaged. The orphan files of all other tables are deleted.
        names = list(limits)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        first, second = (
            delete_orphan_files(spark, io_properties, {name: limits[name] for name in half}) for half in halves
        )
        return first + second
    files, deleted_bytes, failures = 0, 0, list[Exception]()
    for name in limits:
        rows = [row for row in differing if row.table == name]
        if error := _find_error(spark, tables[name], name, rows):
            failures.append(error)
            continue
        for row in rows:
            if row.is_old:
                tables[name].io().deleteFile(row.location)
                files, deleted_bytes = files + 1, deleted_bytes + row.bytes
    return DeletedFiles(files, deleted_bytes, tuple(failures))


def _find_error(spark: SparkSession, table: Any, name: str, rows: list[Row]) -> LakehouseError | None:
    for row in rows:
        if row.location is None:
            return MissingFilesError(name, row.path)
        if row.path.endswith(_METADATA_FILE) and _is_of_another_table(spark, table, row.location):
            return SharedWarehouseError(row.location)
    return None


def _is_of_another_table(spark: SparkSession, table: Any, location: str) -> bool:
    try:
        metadata = get_iceberg_class(spark, "TableMetadataParser").read(table.io(), location)
    except Py4JJavaError:
        # The file is incomplete, or was deleted meanwhile.
        return False
    return str(metadata.uuid()) != str(table.uuid())


def _compare_files(
    spark: SparkSession, io_properties: Mapping[str, str], tables: Mapping[str, Any], limits: Mapping[str, datetime]
) -> DataFrame:
    """Return files that are only in a table's folder (old files and metadata files), or only in its metadata (missing).

    Columns: ``table``, ``path``, ``location`` (NULL for a missing file), ``bytes``, ``is_old``.
    """
    folders = [(name, str(table.location()), int(limits[name].timestamp() * 1000)) for name, table in tables.items()]
    tasks = spark.sparkContext.parallelize(folders).flatMap(partial(_list_files, {**io_properties}))
    listed = spark.createDataFrame(tasks, "table string, location string, bytes long, is_old boolean")
    listed = listed.withColumn("path", _get_path("location"))
    referenced = _read_references(spark, tables).select("table", _get_path("location").alias("path")).distinct()
    in_folder = spark.createDataFrame(folders, "table string, folder string, limit long").select(
        "table", f.concat(_get_path("folder"), f.lit("/")).alias("folder")
    )
    missing = f.col("location").isNull() & f.col("path").startswith(f.col("folder"))
    # A concurrent commit deletes old metadata files.
    missing &= ~f.col("path").endswith(_METADATA_FILE)
    orphan = f.col("is_referenced").isNull() & (f.col("is_old") | f.col("path").endswith(_METADATA_FILE))
    joined = listed.join(referenced.withColumn("is_referenced", f.lit(True)), ["table", "path"], "full")
    return joined.join(f.broadcast(in_folder), "table").where(orphan | missing)


def _list_files(properties: dict[str, str], folder: tuple[str, str, int]) -> Iterator[tuple[str, str, int, bool]]:
    """For each file below a table's location, yield table, location, bytes and whether the file is old."""
    # A worker inherits the AWS keys from the driver, under other names.
    aws_keys.restore_aws_keys()
    name, location, limit = folder
    io = PyArrowFileIO(properties)
    scheme, host, path = io.parse_location(location)
    prefix = f"{scheme}://" if host else f"{scheme}:"
    for file in io.fs_by_scheme(scheme, host).get_file_info(FileSelector(path, recursive=True, allow_not_found=True)):
        # Hadoop hides its checksum files, and deletes each with its data file.
        if file.is_file and not (file.base_name.startswith(".") and file.extension == "crc"):
            yield name, f"{prefix}{file.path}", file.size, file.mtime_ns < limit * 1_000_000


def _read_references(spark: SparkSession, tables: Mapping[str, Any]) -> DataFrame:
    """Return table and location of all files that a snapshot or the metadata of a table refers to."""
    util = get_iceberg_class(spark, "ReachableFileUtil")
    of_metadata = [
        (name, str(location))
        for name, table in tables.items()
        for locations in (
            util.metadataFileLocations(table, False),
            util.manifestListLocations(table),
            util.statisticsFilesLocations(table),
        )
        for location in locations
    ]
    of_snapshots = [
        spark.table(f"{name}.{files}").select(f.lit(name), path)
        for name in tables
        for files, path in (("all_manifests", "path"), ("all_files", "file_path"))
    ]
    return reduce(DataFrame.unionAll, of_snapshots, spark.createDataFrame(of_metadata, "table string, location string"))


def _get_path(column: str) -> Any:
    """Return a location without its scheme, because Java writes file:/a and Python file:///a."""
    return f.regexp_replace(column, "^(?i)[a-z0-9+.-]+:/*", "/")
