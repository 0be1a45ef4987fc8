"""Rewrite a table's files without changing its rows: deletes are applied to the bytes, small files are merged.

It happens on a branch, and what came out is compared with what went in before readers get to see it.
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
"""A table may have this many files well below the size that Iceberg aims at; more are merged."""

_OPTIONS: Final = {
    # Rows that are only marked as deleted keep their bytes until the file is written anew, however few they are.
    "delete-file-threshold": "1",
    "min-input-files": str(MAX_SMALL_FILES + 1),
}
_MOST_APPENDED_FILES: Final = 50
# Iceberg's own defaults: the size that it aims at, and the share of it below which a file is small.
_SMALL_BYTES: Final = int((512 << 20) * 0.75)


@dataclass(frozen=True)
class FileCounts:
    """Files of a snapshot: those with data, how many of them are small, and those that mark rows as deleted."""

    data: int
    small: int
    deletes: int

    @property
    def need_compaction(self) -> bool:
        """Whether rewriting them gains something."""
        return self.deletes > 0 or self.small > MAX_SMALL_FILES


def count_files(spark: SparkSession, name: str, snapshot_id: int) -> FileCounts:
    """What the table ``name`` consists of at a snapshot."""
    table = load_iceberg_table(spark, name)
    sizes = [int(task.file().fileSizeInBytes()) for task in _tasks(table, snapshot_id)]
    deletes = len(list(_deletes(spark, table, snapshot_id)))
    return FileCounts(len(sizes), sum(size < _SMALL_BYTES for size in sizes), deletes)


def compact_table(spark: SparkSession, name: str, snapshot_id: int, branch: str) -> int:
    """Rewrite the files of ``name`` at ``snapshot_id`` on ``branch``, which is made anew: the branch's new snapshot.

    The branch is dropped where that fails.

    :raises ReleaseError: when the content would change.
    """
    table = load_iceberg_table(spark, name)
    if table.refs().containsKey(branch):
        table.manageSnapshots().removeBranch(branch).commit()
    table.manageSnapshots().createBranch(branch, snapshot_id).commit()
    try:
        return _compacted(spark, table, name, snapshot_id, branch)
    except Exception:
        table.refresh()
        table.manageSnapshots().removeBranch(branch).commit()
        raise


def _compacted(spark: SparkSession, table: Any, name: str, snapshot_id: int, branch: str) -> int:
    rewrite = _rewriting(spark, table)
    for option, value in _OPTIONS.items():
        rewrite.option(option, value)
    same = input_fingerprint.get_fingerprint_properties(table.snapshot(snapshot_id).summary(), snapshot_id)
    for key, value in same.items():
        rewrite.snapshotProperty(key, value)
    rewrite.toBranch(branch).execute()
    _drop_idle_deletes(spark, table, branch, same)
    table.refresh()
    compacted = int(table.snapshot(branch).snapshotId())
    before, after = (_content(spark, name, one) for one in (snapshot_id, compacted))
    counted = _counted(spark, table, compacted)
    if before != after or counted != after[0]:
        raise ReleaseError(
            f"Compacting {name} would have changed it: {before[0]:,} rows before, {after[0]:,} after, {counted:,} by "
            "its files. It was given up, and readers see what they saw. Please report this."
        )
    return compacted


def merge_small_files(spark: SparkSession, name: str) -> None:
    """Merge the small files of an unbranched table, in place, once there are many; appends meanwhile do no harm."""
    table = load_iceberg_table(spark, name)
    head = table.currentSnapshot()
    if head is not None and len(list(_tasks(table, int(head.snapshotId())))) > _MOST_APPENDED_FILES:
        _rewriting(spark, table).execute()


def _rewriting(spark: SparkSession, table: Any) -> Any:
    return get_iceberg_class(spark, "spark.actions.SparkActions").get(spark._jsparkSession).rewriteDataFiles(table)


def _drop_idle_deletes(spark: SparkSession, table: Any, branch: str, same: Mapping[str, str]) -> None:
    """Remove files that mark rows only of data files that are no longer there.

    Iceberg leaves those that are as young as the data and name several files: it looks at their age only.
    """
    table.refresh()
    snapshot_id = table.snapshot(branch).snapshotId()
    data = {str(task.file().location()) for task in _tasks(table, snapshot_id)}
    rewrite, idle = table.newRewrite().toBranch(branch), 0
    for delete in _deletes(spark, table, snapshot_id):
        marked = spark.read.parquet(str(delete.location())).select("file_path").distinct().collect()
        if data.isdisjoint(row.file_path for row in marked):
            rewrite.deleteFile(delete)
            idle += 1
    for key, value in same.items():
        rewrite.set(key, value)
    if idle:
        rewrite.commit()


def _tasks(table: Any, snapshot_id: int) -> Iterator[Any]:
    return iterate_java(table.newScan().useSnapshot(snapshot_id).planFiles())


def _deletes(spark: SparkSession, table: Any, snapshot_id: int) -> Iterator[Any]:
    """Files that mark rows as deleted."""
    manifests = get_iceberg_class(spark, "ManifestFiles")
    for manifest in iterate_java(table.snapshot(snapshot_id).deleteManifests(table.io())):
        yield from iterate_java(manifests.readDeleteManifest(manifest, table.io(), table.specs()))


def _counted(spark: SparkSession, table: Any, snapshot_id: int) -> int:
    """Rows by what is said of files; totals of snapshots may have begun at zero with a branch."""
    rows = sum(int(task.file().recordCount()) for task in _tasks(table, snapshot_id))
    return rows - sum(int(delete.recordCount()) for delete in _deletes(spark, table, snapshot_id))


def _content(spark: SparkSession, name: str, snapshot_id: int) -> tuple[int, int]:
    """Number of rows, and a hash of them that does not depend on their order."""
    rows = spark.read.option("versionAsOf", snapshot_id).table(name)
    hashed = f.xxhash64(*(f.col(column) for column in rows.columns)).cast("decimal(20,0)")
    row = rows.agg(f.count(f.lit(1)), f.sum(hashed)).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)
