"""Delete the rows of a published table that an incremental copy replaces or that the source no longer has."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.read.changed_rows import read_rows_at
from synapse_lakehouse.iceberg.read.data_files import read_data_files
from synapse_lakehouse.ingest.baseline import Baseline
from synapse_lakehouse.ingest.copy_target import CopyTarget
from synapse_lakehouse.postgres.connection import build_conninfo
from synapse_lakehouse.postgres.rows.key_buckets import build_keys_query, count_rows_per_bucket, get_bucket_width
from synapse_lakehouse.postgres.rows.older_versions import has_older_versions
from synapse_lakehouse.postgres.rows.snapshot_reader import iterate_rows

_MAX_REPEATED_KEYS: Final = 1_000_000
"""Maximum number of keys of a table with repeated keys that the driver passes to the source. They need 100 MB."""


class FullCopyRequiredError(LakehouseError):
    """An incremental copy would not reproduce the source's rows, or would cost more than a full copy."""


@dataclass(frozen=True)
class DeletedRows:
    """Numbers of the deleted rows: outdated versions of changed rows, and rows that the source no longer has.

    ``missing_keys``: primary key columns of the rows that the source no longer has; None without such rows.
    """

    outdated: int = 0
    missing: int = 0
    missing_keys: DataFrame | None = None


def delete_rows(
    target: CopyTarget, base: Baseline, new_pages: Sequence[str], changes: Sequence[str], read: int, expected: int
) -> DeletedRows:
    """Delete rows of ``base`` on the branch: outdated versions of the rows that were read, and rows deleted since.

    The files of ``new_pages`` and ``changes`` contain every row that the source wrote since ``base``. All other rows of
    the source are current in ``base``. So the number of rows to delete follows from counts. If a row to delete has no
    newer version in the files, the source deleted it. To find such rows, row counts per key bucket are compared on both
    sides, and the source's keys in differing buckets are read.

    :param new_pages: files with pages that ``base`` lacks, already on the branch.
    :param changes: files with changed rows of the other pages, not yet on the branch.
    :param read: number of rows in all these files.
    :param expected: number of rows in the source's snapshot.
    :raises FullCopyRequiredError: when the counts do not agree, when changed rows may share keys with unchanged rows,
        or when more rows are outdated than the source has. Some rows may be deleted already.
    """
    spark, table = target.app.spark, target.table
    surplus = base.rows + read - expected
    if not surplus:
        return DeletedRows()
    if surplus > expected:
        raise FullCopyRequiredError(f"{surplus:,} of {base.rows:,} rows of {table.name} in the lake are outdated")
    outdated, snapshot_id = 0, base.snapshot_id
    if paths := [*new_pages, *changes]:
        newer_keys = read_data_files(spark, f"bronze.{table.name}", paths).select(*table.primary_key)
        if table.repeats_keys and _may_share_keys(target, base, newer_keys):
            raise FullCopyRequiredError(f"keys of {table.name} repeat, so it is unknown which rows of a key changed")
        outdated, snapshot_id = target.delete_keys(newer_keys, new_pages)
    missing = surplus - outdated
    if missing < 0:
        raise FullCopyRequiredError(f"{-missing} rows of {table.name} are missing in the lake")
    if not missing:
        return DeletedRows(outdated)
    on_branch = _read_keys(spark, table, snapshot_id)
    missing_keys = persist_to_disk(_find_missing(target, on_branch, changes))
    deleted, _ = target.delete_keys(missing_keys)
    if deleted != missing:
        raise FullCopyRequiredError(
            f"{deleted} rows of {table.name} are missing in the source, but by the row counts, {missing} are missing"
        )
    return DeletedRows(outdated, missing, missing_keys)


def persist_to_disk(frame: DataFrame) -> DataFrame:
    """Return ``frame``, computed once and cached on disk until the Spark session ends."""
    return frame.persist(StorageLevel.DISK_ONLY)


def _read_keys(spark: SparkSession, table: Table, snapshot_id: int) -> DataFrame:
    # A DELETE makes Spark compute cached frames again. Only the rows of a given Iceberg snapshot are then the same.
    return read_rows_at(spark, f"bronze.{table.name}", snapshot_id).select(*table.primary_key)


def _may_share_keys(target: CopyTarget, base: Baseline, changed_keys: DataFrame) -> bool:
    """Return whether changed rows may share keys with unchanged rows, which would be deleted with the old versions.

    Unchanged rows are in the lake, so only keys that the lake contains are looked up in the source.

    :param changed_keys: primary key columns of the changed rows.
    """
    table = target.table
    lake_keys = _read_keys(target.app.spark, table, base.snapshot_id)
    same_key = _same_key(lake_keys, changed_keys, table.primary_key)
    keys = lake_keys.join(changed_keys, same_key, "left_semi").distinct().limit(_MAX_REPEATED_KEYS + 1).toArrow()
    return keys.num_rows > _MAX_REPEATED_KEYS or has_older_versions(target.connection, table, keys, base.since)


def find_deleted_keys(spark: SparkSession, table: Table, before: int, after: int) -> DataFrame:
    """Return the primary keys that the Iceberg snapshot ``before`` of a table contains and ``after`` does not."""
    old, new = (_read_keys(spark, table, snapshot_id) for snapshot_id in (before, after))
    return persist_to_disk(old.join(new, _same_key(old, new, table.primary_key), "left_anti"))


def _find_missing(target: CopyTarget, on_branch: DataFrame, changes: Sequence[str]) -> DataFrame:
    """Return those of the keys ``on_branch`` (primary key columns) that the source does not have.

    :param changes: as for :func:`delete_rows`.
    """
    table, width = target.table, get_bucket_width(target.table)
    bucket = f.expr(width.spark_sql())
    keys = on_branch
    if changes:
        keys = keys.union(read_data_files(target.app.spark, f"bronze.{table.name}", changes).select(*table.primary_key))
    in_lake = {row.bucket: row["count"] for row in keys.groupBy(bucket.alias("bucket")).count().collect()}
    in_source = count_rows_per_bucket(target.connection, table, width)
    buckets = in_lake.keys() | in_source.keys()
    differing = sorted(name for name in buckets if in_lake.get(name, 0) != in_source.get(name, 0))
    source_keys = _read_source_keys(target, build_keys_query(table, width, differing).as_string(), on_branch)
    return on_branch.where(bucket.isin(differing)).join(
        source_keys, _same_key(on_branch, source_keys, table.primary_key), "left_anti"
    )


def _read_source_keys(target: CopyTarget, statement: str, like: DataFrame) -> DataFrame:
    """Return the rows of ``statement`` in the source, with the columns of ``like``. One Spark task reads them."""
    read = partial(
        iterate_rows,
        conninfo=build_conninfo(target.app.settings, target.table.database, target.snapshot.server),
        snapshot=target.snapshot.name,
        statement=statement,
        schema=to_arrow_schema(like.schema),
    )
    return target.app.spark.range(1, numPartitions=1).mapInArrow(read, like.schema)


def _same_key(left: DataFrame, right: DataFrame, key: Sequence[str]) -> Column:
    return reduce(and_, (left[name].eqNullSafe(right[name]) for name in key))
