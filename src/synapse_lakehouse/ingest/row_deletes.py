"""Find the rows of a published table that an incremental copy deletes: outdated row versions, and deleted rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table as LakeTable
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.write.places import COLUMNS, Places, count, places, rows_at
from synapse_lakehouse.ingest.baseline import Baseline
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.key_buckets import KeyBuckets, count_rows_per_bucket, list_bucket_widths, read_keys
from synapse_lakehouse.postgres.rows.older_versions import has_older_versions

_FILE, _POSITION = COLUMNS

_KEYS_WITHOUT_NARROWING: Final = 50_000
"""Up to this many keys are read for comparison; with more, narrower buckets locate the differences first."""

_MAX_KEYS: Final = 1_000_000
"""With more keys than this a full copy is cheaper than a comparison of keys."""


_MAX_DELETES: Final = 5_000_000
"""With more deleted rows than this a full copy is cheaper for all readers."""

_MAX_ROWS_IN_DRIVER: Final = 20_000_000
"""Spark's workers look up the keys of larger tables."""


class FullCopyRequiredError(LakehouseError):
    """An incremental copy would not reproduce the source's rows, or would cost more than a full copy."""


@dataclass(frozen=True)
class RowDeletes:
    """Positions of the rows to delete.

    * ``outdated``: number of the rows that have a newer version among the changed rows.
    * ``deleted``: keys of all other rows to delete: the source no longer has these rows.
    """

    places: Places
    outdated: int
    deleted: DataFrame | None

    @property
    def rows_deleted(self) -> int:
        """Number of rows in ``deleted``."""
        return count(self.places) - self.outdated


def find_rows_to_delete(
    spark: SparkSession,
    connection: Connection,
    table: Table,
    lake: LakeTable,
    base: Baseline,
    changes: Sequence[str],
    expected_rows: int,
    changed_rows: int,
) -> RowDeletes:
    """Return the rows to delete from ``base`` before the rows in the Parquet files ``changes`` are added.

    The changes contain every row that the source wrote since ``base``; all other rows are current in ``base``. So the
    number of rows to delete follows from counts. Rows without a newer version among the changes were deleted in the
    source. Row counts per key bucket on both sides, and the keys of differing buckets, locate them.

    :param expected_rows: rows in the source's snapshot.
    :param changed_rows: rows in ``changes``.
    :raises FullCopyRequiredError: when the counts cannot be made to agree, as when keys repeat, or too much was
        deleted.
    """
    surplus_rows = base.rows + changed_rows - expected_rows
    if not surplus_rows:
        return RowDeletes({}, 0, None)
    if surplus_rows > _MAX_DELETES:
        raise FullCopyRequiredError(f"{surplus_rows:,} of its rows in the lake are outdated or deleted")
    outdated = _find_outdated(spark, table, lake, base, changes, changed_rows)
    if table.repeats_keys and outdated and _may_share_keys(connection, table, lake, outdated, base.since):
        raise FullCopyRequiredError(f"keys of {table.name} repeat, so the changed rows of a key are unknown")
    deleted_rows = surplus_rows - count(outdated)
    if deleted_rows < 0:
        raise FullCopyRequiredError(f"{-deleted_rows} rows of {table.name} are missing in the lake")
    if not deleted_rows:
        return RowDeletes(outdated, count(outdated), None)
    unchanged = _read_base(spark, table, base)
    if changes:
        changed = _read_changes(spark, table, changes, changed_rows)
        unchanged = unchanged.join(changed, _same_key(unchanged, changed, table.primary_key), "left_anti")
    missing = persist_to_disk(_find_missing(spark, connection, table, unchanged, changes))
    deleted = _collect_places(missing)
    if count(deleted) != deleted_rows:
        raise FullCopyRequiredError(
            f"{count(deleted)} deleted rows of {table.name} were found; the counts require {deleted_rows}"
        )
    both = {path: [*outdated.get(path, ()), *deleted.get(path, ())] for path in outdated.keys() | deleted.keys()}
    return RowDeletes(both, count(outdated), missing.select(*table.primary_key))


def persist_to_disk(frame: DataFrame) -> DataFrame:
    """Return ``frame``, computed once and cached on disk until the Spark session ends."""
    return frame.persist(StorageLevel.DISK_ONLY)


def _find_outdated(
    spark: SparkSession, table: Table, lake: LakeTable, base: Baseline, changes: Sequence[str], changed_rows: int
) -> Places:
    """Return the positions of older versions of the changed rows."""
    if not changes:
        return {}
    if base.rows <= _MAX_ROWS_IN_DRIVER and changed_rows <= _MAX_KEYS:
        return places(lake, base.snapshot_id, table.primary_key, _read_keys(lake, table, changes))
    rows, changed = _read_base(spark, table, base), _read_changes(spark, table, changes, changed_rows)
    return _collect_places(rows.join(changed, _same_key(rows, changed, table.primary_key), "left_semi"))


def _may_share_keys(connection: Connection, table: Table, lake: LakeTable, outdated: Places, since: int) -> bool:
    """Return whether changed rows may share keys with unchanged rows, which would be deleted with the old versions.

    Unchanged rows are in the lake, so only keys that the lake contains are looked up in the source.
    """
    if count(outdated) > _MAX_KEYS:
        return True
    keys = rows_at(lake.io, outdated, table.primary_key).group_by(list(table.primary_key)).aggregate([])
    return has_older_versions(connection, table, keys, since)


def _read_keys(lake: LakeTable, table: Table, changes: Sequence[str]) -> pa.Table:
    tables = []
    for path in changes:
        with lake.io.new_input(path).open() as stream:
            tables.append(pq.read_table(stream, columns=list(table.primary_key)))
    return pa.concat_tables(tables)


def _read_base(spark: SparkSession, table: Table, base: Baseline) -> DataFrame:
    return (
        spark.read.option("versionAsOf", base.snapshot_id)
        .table(f"bronze.{table.name}")
        .select(*table.primary_key, f.col("_file").alias(_FILE), f.col("_pos").alias(_POSITION))
    )


def _read_changes(spark: SparkSession, table: Table, changes: Sequence[str], changed_rows: int) -> DataFrame:
    changed = spark.read.parquet(*changes).select(*table.primary_key)
    return f.broadcast(changed) if changed_rows <= _MAX_KEYS else changed


def find_deleted_keys(spark: SparkSession, table: Table, before: int, after: int) -> DataFrame:
    """Return the keys that the Iceberg snapshot ``before`` of a table contains and ``after`` does not."""
    old, new = (
        spark.read.option("versionAsOf", snapshot_id).table(f"bronze.{table.name}").select(*table.primary_key)
        for snapshot_id in (before, after)
    )
    return persist_to_disk(old.join(new, _same_key(old, new, table.primary_key), "left_anti"))


def _find_missing(
    spark: SparkSession, connection: Connection, table: Table, unchanged: DataFrame, changes: Sequence[str]
) -> DataFrame:
    key = unchanged.select(*table.primary_key)
    lake_keys = reduce(
        DataFrame.union, [key, *([spark.read.parquet(*changes).select(*key.columns)] if changes else [])]
    )
    differing = _find_differing_buckets(connection, table, lake_keys)
    source_keys = spark.createDataFrame(read_keys(connection, table, differing), key.schema)
    return unchanged.where(_is_in(differing)).join(
        f.broadcast(source_keys), _same_key(unchanged, source_keys, table.primary_key), "left_anti"
    )


def _find_differing_buckets(connection: Connection, table: Table, lake_keys: DataFrame) -> KeyBuckets:
    """Return the buckets in which the row counts of ``lake_keys`` and of the source differ.

    :raises FullCopyRequiredError: when the source has too many rows in them.
    """
    differing, rows = None, 0
    for width in list_bucket_widths(table):
        frame = lake_keys if differing is None else lake_keys.where(_is_in(differing))
        counted = frame.groupBy(f.expr(width.spark_sql()).alias("bucket")).count().collect()
        in_lake = {row.bucket: row["count"] for row in counted}
        in_source = count_rows_per_bucket(connection, table, width, differing)
        names = [name for name in in_lake.keys() | in_source.keys() if in_lake.get(name, 0) != in_source.get(name, 0)]
        differing, rows = KeyBuckets(width, sorted(names)), sum(in_source.get(name, 0) for name in names)
        if rows <= _KEYS_WITHOUT_NARROWING:
            break
    if differing is None or rows > _MAX_KEYS:
        raise FullCopyRequiredError(f"rows were deleted in too many key ranges of {table.name}")
    return differing


def _is_in(buckets: KeyBuckets) -> Column:
    return f.expr(buckets.width.spark_sql()).isin(list(buckets.names))


def _same_key(left: DataFrame, right: DataFrame, key: Sequence[str]) -> Column:
    return reduce(and_, (left[name].eqNullSafe(right[name]) for name in key))


def _collect_places(frame: DataFrame) -> Places:
    by_file = frame.groupBy(_FILE).agg(f.collect_list(_POSITION).alias(_POSITION)).toArrow()
    return {path.as_py(): [rows.values] for path, rows in zip(by_file[_FILE], by_file[_POSITION], strict=True)}
