"""Find rows with closed stream IDs that differ from the previous release.

A run writes rows that it reads again to new data files. So only new files with an ID at or below the previous safe
bound are compared. Columns that the catalogue declares as changing are not compared.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Contiguity, Stream, Table, effective_contiguity
from synapse_lakehouse.iceberg.read.data_files import read_data_files
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java, load_iceberg_table
from synapse_lakehouse.postgres.rows.key_ranges import key_range_spark_sql
from synapse_lakehouse.postgres.rows.range_digest import row_hash_spark_sql
from synapse_lakehouse.streams.gaps.classify import Evidence
from synapse_lakehouse.streams.stream_tables import StreamTables, union_all


@dataclass(frozen=True)
class RereadIds:
    """The closed IDs of ``stream`` in new data ``files`` of ``table``: their number, and the least and greatest ID."""

    stream: Stream
    table: Table
    files: tuple[str, ...]
    ids: int
    least: int
    last: int

    @property
    def has_unique_ids(self) -> bool:
        """Whether each ID has only one row."""
        return self.stream.unique_ids and not self.table.repeats_ids

    @property
    def key(self) -> list[str]:
        """Columns that identify a row: the ID, or the primary key if several rows may share an ID."""
        return [self.table.streams[self.stream.name]] if self.has_unique_ids else list(self.table.primary_key)


def find_reread_ids(tables: StreamTables, comparable: Collection[str]) -> list[RereadIds]:
    """Return, by append-only table, the IDs at or below the previous safe bound whose rows this run read again.

    :param comparable: tables that this run and the previous release read with the same statement. Only these tables are
        compared, because the declarations of other tables may have changed.
    """
    changed, files = tables.changed_tables().intersection(comparable), {}
    for stream, table in tables.catalogue.stream_table_pairs():
        is_comparable = table.name in changed and tables.previous_bound(stream) is not None
        if is_comparable and effective_contiguity(stream, table) is Contiguity.APPEND_ONLY:
            files[stream.name, table.name] = stream, table, _newer_files(tables, stream, table)
    id_frames = [
        read_data_files(tables.spark, f"bronze.{table.name}", paths)
        .where(_is_closed(tables, stream, table))
        .select(
            f.lit(stream.name).alias("stream"),
            f.lit(table.name).alias("table_name"),
            f.col(table.streams[stream.name]).cast("bigint").alias("id"),
        )
        for stream, table, paths in files.values()
        if paths
    ]
    if not id_frames:
        return []
    counts = f.count_distinct("id").alias("ids"), f.min("id").alias("least"), f.max("id").alias("last")
    rows = union_all(id_frames).groupBy("stream", "table_name").agg(*counts).collect()
    return [RereadIds(*files[row.stream, row.table_name], row.ids, row.least, row.last) for row in rows]


def find_changed_ids(
    tables: StreamTables, reread: Collection[RereadIds], repaired: Mapping[str, Collection[str]]
) -> DataFrame | None:
    """Return IDs whose row differs from the previous release; None if no row was read again.

    The columns are ``EVIDENCE_COLUMNS``. IDs whose row is missing, and IDs with an additional row, are not included.

    :param repaired: by table, the key ranges in which this run repaired the lake. Differences there are not reported,
        because the previous release was wrong and the source had not changed.
    """
    frames = [_changed_ids(tables, ids, repaired.get(ids.table.name, ())) for ids in reread]
    return union_all(frames) if frames else None


def find_added_ids(
    tables: StreamTables, reread: Collection[RereadIds], repaired: Mapping[str, Collection[str]]
) -> DataFrame | None:
    """Return IDs that have more rows than in the previous release; None if no row was read again.

    The columns are ``EVIDENCE_COLUMNS``. Only IDs that several rows may share, and that had a row, are included.

    :param repaired: as for :func:`find_changed_ids`.
    """
    frames = [_added_ids(tables, ids, repaired.get(ids.table.name, ())) for ids in reread if not ids.has_unique_ids]
    return union_all(frames) if frames else None


def _changed_ids(tables: StreamTables, ids: RereadIds, repaired: Collection[str]) -> DataFrame:
    compared = tuple(column for column in ids.table.columns if not column.changes)
    row_hash = f.expr(row_hash_spark_sql(ids.table.model_copy(update={"columns": compared}))).alias("row_hash")
    before, now = _before_and_now(tables, ids)
    before, now = (frame.select(*ids.key, row_hash) for frame in (_not_repaired(before, ids, repaired), now))
    return _evidence(ids, before.join(now, [*ids.key, "row_hash"], "left_anti").join(now, ids.key, "left_semi"))


def _added_ids(tables: StreamTables, ids: RereadIds, repaired: Collection[str]) -> DataFrame:
    before, now = _before_and_now(tables, ids)
    column = ids.table.streams[ids.stream.name]
    added = _not_repaired(now, ids, repaired).join(before.select(*ids.key), ids.key, "left_anti")
    return _evidence(ids, added.join(before.select(column), column, "left_semi"))


def _before_and_now(tables: StreamTables, ids: RereadIds) -> tuple[DataFrame, DataFrame]:
    """Return the rows with the reread IDs in the previous release, and on the run's branch, with all bronze columns."""
    previous = tables.previous_version(ids.table.name)
    assert previous is not None, "its data files were compared with the previous snapshot"
    column = ids.table.streams[ids.stream.name]
    reread = read_data_files(tables.spark, f"bronze.{ids.table.name}", ids.files)
    reread = reread.where(_is_closed(tables, ids.stream, ids.table)).select(column)
    before, now = (
        frame.where(f.col(column).between(ids.least, ids.last)).join(reread.distinct(), column, "left_semi")
        for frame in (previous, tables.spark.table(f"bronze.{ids.table.name}"))
    )
    return before, now


def _not_repaired(rows: DataFrame, ids: RereadIds, repaired: Collection[str]) -> DataFrame:
    return rows.where(~f.expr(key_range_spark_sql(ids.table)).isin(*repaired)) if repaired else rows


def _evidence(ids: RereadIds, rows: DataFrame) -> DataFrame:
    distance = f.col(ids.table.streams[ids.stream.name]).cast("bigint") * ids.stream.direction
    return rows.select(
        f.lit(ids.stream.name).alias("stream"),
        f.lit(ids.table.name).alias("table_name"),
        distance.alias("id"),
        f.lit(Evidence.ACCEPTED_ROW.value).alias("evidence"),
        f.lit(None).cast("string").alias("explanation"),
    ).distinct()


def _is_closed(tables: StreamTables, stream: Stream, table: Table) -> Column:
    bound = tables.previous_bound(stream)
    assert bound is not None
    return f.col(table.streams[stream.name]).between(min(bound, 0), max(bound, 0))


def _newer_files(tables: StreamTables, stream: Stream, table: Table) -> tuple[str, ...]:
    """Return data files added since the previous release that may contain closed IDs; empty if that is unknown."""
    bronze, name = load_iceberg_table(tables.spark, f"bronze.{table.name}"), f"bronze.{table.name}"
    previous_id = tables.previous.tables.get(name) if tables.previous else None
    previous = bronze.snapshot(previous_id) if previous_id is not None else None
    bound, column = tables.previous_bound(stream), table.streams[stream.name]
    if previous is None or bound is None:
        return ()
    expressions = get_iceberg_class(tables.spark, "expressions.Expressions")
    is_closed = getattr(expressions, "and")(
        expressions.greaterThanOrEqual(column, min(bound, 0)), expressions.lessThanOrEqual(column, max(bound, 0))
    )
    scan = bronze.newScan().useSnapshot(tables.snapshots[table.name]).filter(is_closed)
    files = (task.file() for task in iterate_java(scan.planFiles()))
    # Compaction retains the data sequence number, so the files that it writes do not count as new.
    return tuple(str(file.location()) for file in files if file.dataSequenceNumber() > previous.sequenceNumber())
