"""Compact a table: rewrite files with many or old deleted rows, and merge small files. The rows stay the same.

The compaction writes to a branch. Then it compares the rows of the files that it replaced with the rows of the new
files. Readers see the result only if these rows are equal.
"""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit.releases import ReleaseError
from synapse_lakehouse.iceberg.read.changed_rows import list_delete_files, read_rows_at, read_tasks, scan_tasks
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, load_iceberg_table
from synapse_lakehouse.iceberg.write import input_fingerprint, tables

MAX_DELETED_SHARE: Final = 0.3
"""Share of deleted rows from which on a file is rewritten, Iceberg's default.

With this share, a file has at most 1 / (1 - 0.3) = 1.4 times the size of its remaining rows, and each deleted row
causes the rewrite of at most (1 - 0.3) / 0.3 = 2.3 other rows.
"""

MAX_SMALL_FILES: Final = 4
"""Maximum number of files of a similar size below Iceberg's target size. If a table has more, they are merged."""

_MAX_APPENDED_FILES: Final = 50
# Upper limits of the size classes within which files are merged. The last limit is three quarters of Iceberg's target
# size. Without these classes, each merge would rewrite all small files of a table, and most of their bytes many times.
_SMALL_BYTES: Final = (1 << 20, 8 << 20, 64 << 20, 384 << 20)
_DELETE_FILE_PATH_ID: Final = 2147483546
"""Iceberg's field ID of the column of a position delete file with the path of the data file."""


def plan_compaction(
    spark: SparkSession, name: str, snapshot_id: int, earlier: int | None, max_small_files: int = MAX_SMALL_FILES
) -> dict[str, str] | None:
    """Return the options of Iceberg's rewrite of the table ``name`` as of ``snapshot_id``; None if no file needs it.

    A file is rewritten if its share of deleted rows is at least MAX_DELETED_SHARE. All files with deleted rows are
    rewritten if the table has message content, or if one of these files had deleted rows in the snapshot ``earlier``
    already.

    :param earlier: snapshot of the oldest release that is retained; None if no such release has the table.
    """
    table = load_iceberg_table(spark, name)
    snapshot = table.snapshot(snapshot_id)
    data, deletes = (_count_files(list(of(table.io()))) for of in (snapshot.dataManifests, snapshot.deleteManifests))
    if not deletes and data <= max_small_files:
        return None
    counts = _count_candidates(spark, name, snapshot_id, earlier, has_deletes=deletes > 0)
    # Only a delete file for one data file shows the share of deleted rows. Spark writes only such delete files.
    rewrites_all = deletes and (tables.has_content(dict(table.properties())) or counts["old"] or counts["of_several"])
    crowded = [limit for limit in _SMALL_BYTES if counts[f"below_{limit}"] > max_small_files]
    if not (rewrites_all or counts["above_share"] or crowded):
        return None
    return {
        "delete-ratio-threshold": str(MAX_DELETED_SHARE),
        "min-file-size-bytes": str(max(crowded, default=0)),
        "min-input-files": str(MAX_SMALL_FILES + 1),
    } | ({"delete-file-threshold": "1"} if rewrites_all else {})


def _count_files(manifests: Collection[Any]) -> int:
    return sum(int(manifest.existingFilesCount()) + int(manifest.addedFilesCount()) for manifest in manifests)


def _count_candidates(
    spark: SparkSession, name: str, snapshot_id: int, earlier: int | None, *, has_deletes: bool
) -> Mapping[str, int]:
    """Return the number of files by the reason for which they may be rewritten."""
    data = read_rows_at(spark, f"{name}.data_files", snapshot_id).select(
        "file_path", "record_count", "file_size_in_bytes"
    )
    deletes = _read_deletes(spark, name, snapshot_id)
    old = _read_deletes(spark, name, snapshot_id if earlier is None else earlier).select(
        "data_path", f.lit(True).alias("old")
    )
    if not has_deletes:
        # Spark omits a join with no rows.
        deletes, old = deletes.limit(0), old.limit(0)
    files = data.join(deletes, f.col("file_path") == f.col("data_path"), "full").join(old, "data_path", "left")
    counts = {
        "above_share": f.col("deleted") >= MAX_DELETED_SHARE * f.col("record_count"),
        "old": f.col("file_path").isNotNull() & f.col("old") & f.lit(earlier is not None),
        "of_several": f.col("deleted").isNotNull() & f.col("data_path").isNull(),
    }
    for least, limit in pairwise((0, *_SMALL_BYTES)):
        counts[f"below_{limit}"] = f.col("file_size_in_bytes").between(least, limit - 1)
    row = files.agg(*(f.count_if(condition).alias(reason) for reason, condition in counts.items())).first()
    assert row is not None
    return row.asDict()


def _read_deletes(spark: SparkSession, name: str, snapshot_id: int) -> DataFrame:
    """Return the columns data_path and deleted (number of deleted rows).

    The data_path is NULL for a delete file that applies to several data files.
    """
    least, greatest = (f.col(f"{bound}_bounds")[_DELETE_FILE_PATH_ID].cast("string") for bound in ("lower", "upper"))
    data_path = f.coalesce("referenced_data_file", f.when(least == greatest, least)).alias("data_path")
    files = read_rows_at(spark, f"{name}.delete_files", snapshot_id)
    return files.groupBy(data_path).agg(f.sum("record_count").alias("deleted"))


def compact_table(spark: SparkSession, name: str, snapshot_id: int, branch: str, options: Mapping[str, str]) -> int:
    """Compact ``name`` as of ``snapshot_id`` on a new branch; return the ID of the new snapshot.

    An existing ``branch`` is replaced. After a failure, the branch is dropped.

    :param options: options of :func:`plan_compaction`.
    :raises ReleaseError: when the content would change.
    """
    table = load_iceberg_table(spark, name)
    if table.refs().containsKey(branch):
        table.manageSnapshots().removeBranch(branch).commit()
    table.manageSnapshots().createBranch(branch, snapshot_id).commit()
    try:
        return _rewrite_files(spark, table, name, snapshot_id, branch, options)
    except Exception:
        table.refresh()
        table.manageSnapshots().removeBranch(branch).commit()
        raise


def _rewrite_files(
    spark: SparkSession, table: Any, name: str, snapshot_id: int, branch: str, options: Mapping[str, str]
) -> int:
    actions = get_iceberg_class(spark, "spark.actions.SparkActions").get(spark._jsparkSession)
    properties = input_fingerprint.get_fingerprint_properties(table.snapshot(snapshot_id).summary(), snapshot_id)
    # The second action removes the delete files of the replaced data files.
    for action in (actions.rewriteDataFiles(table).options(dict(options)), actions.removeDanglingDeleteFiles(table)):
        for key, value in properties.items():
            action.snapshotProperty(key, value)
        action.toBranch(branch).execute()
        table.refresh()
    compacted = int(table.snapshot(branch).snapshotId())
    before, after = hash_changed_files(spark, table, snapshot_id, compacted)
    if before != after:
        raise ReleaseError(
            f"A compaction of {name} was discarded, because it would have changed rows: {before[0]:,} rows in the "
            f"previous files, {after[0]:,} rows in the new files. Readers see the previous files. Please report this."
        )
    return compacted


def merge_small_files(spark: SparkSession, name: str) -> None:
    """Merge the small files of an unbranched table if there are many. Concurrent appends are allowed."""
    table = load_iceberg_table(spark, name)
    head = table.currentSnapshot()
    options = head and plan_compaction(spark, name, int(head.snapshotId()), None, _MAX_APPENDED_FILES)
    if options:
        actions = get_iceberg_class(spark, "spark.actions.SparkActions").get(spark._jsparkSession)
        actions.rewriteDataFiles(table).options(options).execute()


def hash_changed_files(
    spark: SparkSession, table: Any, before: int, after: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return number and hash of the rows in the changed files of two snapshots.

    A file is changed if the other snapshot lacks it, or has other delete files for it.
    """
    old, new = scan_tasks(table, before), scan_tasks(table, after)
    same = {path for path in old.keys() & new.keys() if list_delete_files(old[path]) == list_delete_files(new[path])}
    changed = ([task for path, task in tasks.items() if path not in same] for tasks in (old, new))
    hashes = [_hash_rows(read_tasks(spark, table, tasks)) if tasks else (0, 0) for tasks in changed]
    return hashes[0], hashes[1]


def _hash_rows(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and a hash that does not depend on their order."""
    hashed = f.xxhash64(*(f.col(column) for column in rows.columns)).cast("decimal(20,0)")
    row = rows.agg(f.count(f.lit(1)), f.sum(hashed)).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)
