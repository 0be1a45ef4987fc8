"""Which rows of a published table an increment takes away: older versions of changed rows, and rows that are gone."""

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
from synapse_lakehouse.postgres.rows.stale_rows import has_older_versions

_FILE, _POSITION = COLUMNS

_FEW_KEYS: Final = 50_000
"""So many keys are sent to be compared at once; of more, it is looked first where in them the copies differ."""

_MOST_KEYS: Final = 1_000_000
"""More keys than this are not sent to be compared: copying the table whole is then cheaper."""


_MOST_PLACES: Final = 5_000_000
"""Where more rows than this have to be taken away, copying the table whole is cheaper for all who read it."""

_MOST_ROWS_HERE: Final = 20_000_000
"""In a larger table keys are looked up by Spark's workers."""


class FullCopyRequiredError(LakehouseError):
    """An increment would not give the source's rows, or cost more than copying the table whole; it says why."""


@dataclass(frozen=True)
class RowDeletes:
    """Rows to take away, by their places: ``outdated`` of them have a newer version among the changes; ``deleted`` are
    the keys of the others, which the source no longer has."""

    places: Places
    outdated: int
    deleted: DataFrame | None

    @property
    def rows_deleted(self) -> int:
        """How many rows of the places are those of ``deleted``."""
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
    """What to remove from ``base`` before the rows in the Parquet files ``changes`` are added.

    Every row that the source wrote since is among the changes; the others are in ``base`` as they are. So counts tell
    how many rows of it have to go. Those without a newer version among the changes were deleted: they are found by
    counting stretches of keys on both sides, and the keys of the stretches that differ.

    :param expected_rows: rows that the source's snapshot sees.
    :param changed_rows: rows in ``changes``.
    :raises FullCopyRequiredError: when the counts cannot be made to agree, as when keys repeat, or too much was
        deleted.
    """
    to_go = base.rows + changed_rows - expected_rows
    if not to_go:
        return RowDeletes({}, 0, None)
    if to_go > _MOST_PLACES:
        raise FullCopyRequiredError(f"{to_go:,} of its rows in the lake are outdated or were deleted")
    outdated = _outdated(spark, table, lake, base, changes, changed_rows)
    if table.repeats_keys and outdated and _share_keys(connection, table, lake, outdated, base.since):
        raise FullCopyRequiredError(f"keys of {table.name} repeat, and it is not known which rows of a key changed")
    surplus = to_go - count(outdated)
    if surplus < 0:
        raise FullCopyRequiredError(f"{-surplus} rows of {table.name} are missing in the lake")
    if not surplus:
        return RowDeletes(outdated, count(outdated), None)
    held = _held(spark, table, base)
    if changes:
        changed = _changed(spark, table, changes, changed_rows)
        held = held.join(changed, _same_key(held, changed, table.primary_key), "left_anti")
    gone = persist_to_disk(_gone(spark, connection, table, held, changes))
    deleted = _places(gone)
    if count(deleted) != surplus:
        raise FullCopyRequiredError(f"{count(deleted)} rows of {table.name} were deleted where counts say {surplus}")
    both = {path: [*outdated.get(path, ()), *deleted.get(path, ())] for path in outdated.keys() | deleted.keys()}
    return RowDeletes(both, count(outdated), gone.select(*table.primary_key))


def persist_to_disk(frame: DataFrame) -> DataFrame:
    """The same, worked out once and then kept on disk, as it may be long, until the session ends."""
    return frame.persist(StorageLevel.DISK_ONLY)


def _outdated(
    spark: SparkSession, table: Table, lake: LakeTable, base: Baseline, changes: Sequence[str], changed_rows: int
) -> Places:
    """Places of older versions of the changed rows."""
    if not changes:
        return {}
    if base.rows <= _MOST_ROWS_HERE and changed_rows <= _MOST_KEYS:
        return places(lake, base.snapshot_id, table.primary_key, _keys(lake, table, changes))
    held, changed = _held(spark, table, base), _changed(spark, table, changes, changed_rows)
    return _places(held.join(changed, _same_key(held, changed, table.primary_key), "left_semi"))


def _share_keys(connection: Connection, table: Table, lake: LakeTable, outdated: Places, since: int) -> bool:
    """Whether changed rows may share their keys with others, which would be taken away with their older versions.

    Others are in the lake, so that keys which are not there need not be asked for.
    """
    if count(outdated) > _MOST_KEYS:
        return True
    keys = rows_at(lake.io, outdated, table.primary_key).group_by(list(table.primary_key)).aggregate([])
    return has_older_versions(connection, table, keys, since)


def _keys(lake: LakeTable, table: Table, changes: Sequence[str]) -> pa.Table:
    read = []
    for path in changes:
        with lake.io.new_input(path).open() as stream:
            read.append(pq.read_table(stream, columns=list(table.primary_key)))
    return pa.concat_tables(read)


def _held(spark: SparkSession, table: Table, base: Baseline) -> DataFrame:
    return (
        spark.read.option("versionAsOf", base.snapshot_id)
        .table(f"bronze.{table.name}")
        .select(*table.primary_key, f.col("_file").alias(_FILE), f.col("_pos").alias(_POSITION))
    )


def _changed(spark: SparkSession, table: Table, changes: Sequence[str], changed_rows: int) -> DataFrame:
    changed = spark.read.parquet(*changes).select(*table.primary_key)
    return f.broadcast(changed) if changed_rows <= _MOST_KEYS else changed


def find_deleted_keys(spark: SparkSession, table: Table, before: int, after: int) -> DataFrame:
    """Keys that the Iceberg snapshot ``before`` of a table has and ``after`` has not."""
    was, now = (
        spark.read.option("versionAsOf", one).table(f"bronze.{table.name}").select(*table.primary_key)
        for one in (before, after)
    )
    return persist_to_disk(was.join(now, _same_key(was, now, table.primary_key), "left_anti"))


def _gone(
    spark: SparkSession, connection: Connection, table: Table, kept: DataFrame, changes: Sequence[str]
) -> DataFrame:
    key = kept.select(*table.primary_key)
    here = reduce(DataFrame.union, [key, *([spark.read.parquet(*changes).select(*key.columns)] if changes else [])])
    differing = _differing(connection, table, here)
    there = spark.createDataFrame(read_keys(connection, table, differing), key.schema)
    return kept.where(_is_in(differing)).join(
        f.broadcast(there), _same_key(kept, there, table.primary_key), "left_anti"
    )


def _differing(connection: Connection, table: Table, here: DataFrame) -> KeyBuckets:
    """The stretches of keys of which ``here`` has more rows than the source.

    :raises FullCopyRequiredError: when the source has too many rows in them.
    """
    differing, rows = None, 0
    for grain in list_bucket_widths(table):
        frame = here if differing is None else here.where(_is_in(differing))
        found = frame.groupBy(f.expr(grain.spark_sql()).alias("stretch")).count().collect()
        held = {row.stretch: row["count"] for row in found}
        in_source = count_rows_per_bucket(connection, table, grain, differing)
        names = [one for one in held.keys() | in_source.keys() if held.get(one, 0) != in_source.get(one, 0)]
        differing, rows = KeyBuckets(grain, sorted(names)), sum(in_source.get(one, 0) for one in names)
        if rows <= _FEW_KEYS:
            break
    if differing is None or rows > _MOST_KEYS:
        raise FullCopyRequiredError(f"rows were deleted all over {table.name}")
    return differing


def _is_in(stretches: KeyBuckets) -> Column:
    return f.expr(stretches.width.spark_sql()).isin(list(stretches.names))


def _same_key(left: DataFrame, right: DataFrame, key: Sequence[str]) -> Column:
    return reduce(and_, (left[name].eqNullSafe(right[name]) for name in key))


def _places(frame: DataFrame) -> Places:
    by_file = frame.groupBy(_FILE).agg(f.collect_list(_POSITION).alias(_POSITION)).toArrow()
    return {path.as_py(): [rows.values] for path, rows in zip(by_file[_FILE], by_file[_POSITION], strict=True)}
