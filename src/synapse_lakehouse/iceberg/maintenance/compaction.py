"""Compact a table: apply its position deletes and merge its small files. The rows stay the same.

The compaction writes to a branch. It compares the rows before and after, and only then readers see the result.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit.releases import ReleaseError
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java, load_iceberg_table
from synapse_lakehouse.iceberg.write import input_fingerprint

MAX_SMALL_FILES: Final = 4
"""Maximum number of files well below Iceberg's target size. If a table has more, they are merged."""

_OPTIONS: Final = {
    # Even a single deleted row causes the rewrite of a file, because the bytes of the row stay in the file until then.
    "delete-file-threshold": "1",
    "min-input-files": str(MAX_SMALL_FILES + 1),
}
_MAX_APPENDED_FILES: Final = 50
# Iceberg's default target size, and the fraction of it below which a file is small.
_SMALL_BYTES: Final = int((512 << 20) * 0.75)


@dataclass(frozen=True)
class FileCounts:
    """Numbers of data files, small data files and position delete files of a snapshot."""

    data: int
    small: int
    deletes: int

    @property
    def need_compaction(self) -> bool:
        """Whether a compaction would improve the files."""
        return self.deletes > 0 or self.small > MAX_SMALL_FILES


def count_files(spark: SparkSession, name: str, snapshot_id: int) -> FileCounts:
    """Count the files of the table ``name`` at a snapshot."""
    table = load_iceberg_table(spark, name)
    sizes = [int(task.file().fileSizeInBytes()) for task in _tasks(table, snapshot_id)]
    deletes = len(list(_deletes(spark, table, snapshot_id)))
    return FileCounts(len(sizes), sum(size < _SMALL_BYTES for size in sizes), deletes)


def compact_table(spark: SparkSession, name: str, snapshot_id: int, branch: str) -> int:
    """Compact ``name`` as of ``snapshot_id`` on a new branch; return the ID of the new snapshot.

    An existing ``branch`` is replaced. After a failure, the branch is dropped.

    :raises ReleaseError: when the content would change.
    """
    table = load_iceberg_table(spark, name)
    if table.refs().containsKey(branch):
        table.manageSnapshots().removeBranch(branch).commit()
    table.manageSnapshots().createBranch(branch, snapshot_id).commit()
    try:
        return _rewrite_files(spark, table, name, snapshot_id, branch)
    except Exception:
        table.refresh()
        table.manageSnapshots().removeBranch(branch).commit()
        raise


def _rewrite_files(spark: SparkSession, table: Any, name: str, snapshot_id: int, branch: str) -> int:
    rewrite = _rewrite_action(spark, table)
    for option, value in _OPTIONS.items():
        rewrite.option(option, value)
    properties = input_fingerprint.get_fingerprint_properties(table.snapshot(snapshot_id).summary(), snapshot_id)
    for key, value in properties.items():
        rewrite.snapshotProperty(key, value)
    rewrite.toBranch(branch).execute()
    _drop_idle_deletes(spark, table, branch, properties)
    table.refresh()
    compacted = int(table.snapshot(branch).snapshotId())
    before, after = (_content(spark, name, version) for version in (snapshot_id, compacted))
    file_rows = _rows_of_files(spark, table, compacted)
    if before != after or file_rows != after[0]:
        raise ReleaseError(
            f"A compaction of {name} was discarded, because it would have changed rows: {before[0]:,} rows before, "
            f"{after[0]:,} rows after, {file_rows:,} rows according to the files. Readers see the previous files. "
            "Please report this."
        )
    return compacted


def merge_small_files(spark: SparkSession, name: str) -> None:
    """Merge the small files of an unbranched table if there are many. Concurrent appends are allowed."""
    table = load_iceberg_table(spark, name)
    head = table.currentSnapshot()
    if head is not None and len(list(_tasks(table, int(head.snapshotId())))) > _MAX_APPENDED_FILES:
        _rewrite_action(spark, table).execute()


def _rewrite_action(spark: SparkSession, table: Any) -> Any:
    return get_iceberg_class(spark, "spark.actions.SparkActions").get(spark._jsparkSession).rewriteDataFiles(table)


def _drop_idle_deletes(spark: SparkSession, table: Any, branch: str, properties: Mapping[str, str]) -> None:
    """Remove position delete files whose data files no longer exist.

    Iceberg itself does not remove all of them, because it compares only the age of delete files and data files.
    """
    table.refresh()
    snapshot_id = table.snapshot(branch).snapshotId()
    data = {str(task.file().location()) for task in _tasks(table, snapshot_id)}
    rewrite, idle = table.newRewrite().toBranch(branch), 0
    for delete in _deletes(spark, table, snapshot_id):
        references = spark.read.parquet(str(delete.location())).select("file_path").distinct().collect()
        if data.isdisjoint(row.file_path for row in references):
            rewrite.deleteFile(delete)
            idle += 1
    for key, value in properties.items():
        rewrite.set(key, value)
    if idle:
        rewrite.commit()


def _tasks(table: Any, snapshot_id: int) -> Iterator[Any]:
    return iterate_java(table.newScan().useSnapshot(snapshot_id).planFiles())


def _deletes(spark: SparkSession, table: Any, snapshot_id: int) -> Iterator[Any]:
    """The position delete files of a snapshot."""
    manifests = get_iceberg_class(spark, "ManifestFiles")
    for manifest in iterate_java(table.snapshot(snapshot_id).deleteManifests(table.io())):
        yield from iterate_java(manifests.readDeleteManifest(manifest, table.io(), table.specs()))


def _rows_of_files(spark: SparkSession, table: Any, snapshot_id: int) -> int:
    """Number of rows according to the files' metadata. A snapshot's own totals may count only its branch."""
    rows = sum(int(task.file().recordCount()) for task in _tasks(table, snapshot_id))
    return rows - sum(int(delete.recordCount()) for delete in _deletes(spark, table, snapshot_id))


def _content(spark: SparkSession, name: str, snapshot_id: int) -> tuple[int, int]:
    """Number of rows, and a hash of the rows that does not depend on their order."""
    rows = spark.read.option("versionAsOf", snapshot_id).table(name)
    hashed = f.xxhash64(*(f.col(column) for column in rows.columns)).cast("decimal(20,0)")
    row = rows.agg(f.count(f.lit(1)), f.sum(hashed)).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)
