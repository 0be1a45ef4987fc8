"""Delete rows of a table on the session's branch. Iceberg writes position deletes, so data files stay."""

import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.iceberg.write.commits import append_files, ensure_branch, get_recorded_path, load_current_table


def delete_keys(
    spark: SparkSession, name: str, branch: str, keys: DataFrame, spared_files: Sequence[str] = ()
) -> tuple[int, int]:
    """Delete the rows of ``name`` whose key is in ``keys``; return their number and the new snapshot ID.

    In the comparison, NULL equals NULL.

    :param branch: the session's branch. It must exist.
    :param keys: the key columns of the table; keys may repeat.
    :param spared_files: paths of data files whose rows stay.
    """
    view = f"keys_{uuid.uuid4().hex}"
    keys.createOrReplaceTempView(view)
    same_key = " and ".join(f"old.`{column}` <=> {view}.`{column}`" for column in keys.columns)
    condition = f"exists (select 1 from {view} where {same_key})"  # noqa: S608
    before = load_current_table(spark, name)
    if spared_files:
        paths = [(get_recorded_path(spark, before, path),) for path in spared_files]
        spark.createDataFrame(paths, "path string").createOrReplaceTempView(f"{view}_files")
        condition += f" and not exists (select 1 from {view}_files where path = old._file)"  # noqa: S608
    head_before = int(before.snapshot(branch).snapshotId())
    spark.sql(f"delete from {name} as old where {condition}")  # noqa: S608
    spark.catalog.dropTempView(view)
    spark.catalog.dropTempView(f"{view}_files")
    head = load_current_table(spark, name).snapshot(branch)
    snapshot_id = int(head.snapshotId())
    if snapshot_id == head_before:
        return 0, snapshot_id
    # Iceberg merges a file's earlier deletes with the new ones into one delete file.
    added, removed = (int(head.summary().get(f"{kind}-position-deletes") or 0) for kind in ("added", "removed"))
    return added - removed, snapshot_id


def replace_rows(spark: SparkSession, name: str, branch: str, outdated: str, paths: Sequence[str], run_id: str) -> int:
    """Delete rows by the SQL condition ``outdated`` and add the Parquet files ``paths``; return the new snapshot ID.

    :param branch: the session's branch. It is created at main unless it exists.
    """
    ensure_branch(spark, name, branch)
    spark.sql(f"delete from {name} where {outdated}")  # noqa: S608 - built from the catalogue's names
    return append_files(spark, name, branch, paths, {"lakehouse.run": run_id}).snapshot_id
