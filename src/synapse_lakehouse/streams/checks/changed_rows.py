"""Rows whose ids are closed and that a run read again: were they there, and do they say what they said, when their ids
were accepted?

What a run reads again, it adds as new files. So only those are looked into that hold an id at or below the accepted
bound: none, unless something below it was written. Columns that the catalogue lets change are left out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Contiguity, Stream, Table, effective_contiguity
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java, load_iceberg_table
from synapse_lakehouse.postgres.rows.key_ranges import key_range_spark_sql
from synapse_lakehouse.postgres.rows.range_digest import row_hash_spark_sql
from synapse_lakehouse.streams.gaps.classify import Evidence
from synapse_lakehouse.streams.stream_tables import StreamTables, union_all


@dataclass(frozen=True)
class RereadIds:
    """Rows of ``table`` in ``files`` with closed ids of ``stream``: how many ids there are, the least and the last."""

    stream: Stream
    table: Table
    files: tuple[str, ...]
    ids: int
    least: int
    last: int

    @property
    def is_one(self) -> bool:
        """Whether an id has one row."""
        return self.stream.unique_ids and not self.table.repeats_ids

    @property
    def key(self) -> list[str]:
        """Columns by which a row is the same row: its id, or its primary key where several share an id."""
        return [self.table.streams[self.stream.name]] if self.is_one else list(self.table.primary_key)


def find_reread_ids(held: StreamTables, read_alike: Collection[str]) -> list[RereadIds]:
    """What this run read again of append-only tables below the bound that the release before accepted.

    :param read_alike: tables that the run read with the statement of the release before. Of others nothing can be
        said, as the catalogue may have changed.
    """
    again, files = held.changed_names().intersection(read_alike), {}
    for stream, table in held.catalogue.stream_table_pairs():
        is_comparable = table.name in again and held.bound(stream) is not None
        if is_comparable and effective_contiguity(stream, table) is Contiguity.APPEND_ONLY:
            files[stream.name, table.name] = stream, table, _newer_files(held, stream, table)
    counted = [
        held.spark.read.parquet(*paths)
        .where(_is_closed(held, stream, table))
        .select(
            f.lit(stream.name).alias("stream"),
            f.lit(table.name).alias("table_name"),
            f.col(table.streams[stream.name]).cast("bigint").alias("id"),
        )
        for stream, table, paths in files.values()
        if paths
    ]
    if not counted:
        return []
    ends = f.count_distinct("id").alias("ids"), f.min("id").alias("least"), f.max("id").alias("last")
    found = union_all(counted).groupBy("stream", "table_name").agg(*ends).collect()
    return [RereadIds(*files[row.stream, row.table_name], row.ids, row.least, row.last) for row in found]


def find_changed_ids(
    held: StreamTables, found: Collection[RereadIds], mended: Mapping[str, Collection[str]]
) -> DataFrame | None:
    """Ids of rows that say something else than the release before, in ``witnesses.COLUMNS``; None if none was read.

    An id that is gone is not among them, nor one with a row more than it had.

    :param mended: ranges of keys by table in which the run found the release to differ from an unchanged source: there
        it was the lake that was wrong.
    """
    frames = [_changed(held, one, mended.get(one.table.name, ())) for one in found]
    return union_all(frames) if frames else None


def find_added_ids(
    held: StreamTables, found: Collection[RereadIds], mended: Mapping[str, Collection[str]]
) -> DataFrame | None:
    """Ids that several rows may share and that have a row more than the release before has, in ``witnesses.COLUMNS``.

    An id that had no row at all is not among them. None if none was read.

    :param mended: as for :func:`find_changed_ids`.
    """
    frames = [_added(held, one, mended.get(one.table.name, ())) for one in found if not one.is_one]
    return union_all(frames) if frames else None


def _changed(held: StreamTables, one: RereadIds, mended: Collection[str]) -> DataFrame:
    kept = tuple(column for column in one.table.columns if not column.changes)
    said = f.expr(row_hash_spark_sql(one.table.model_copy(update={"columns": kept}))).alias("said")
    was, now = _then_and_now(held, one)
    was, now = (frame.select(*one.key, said) for frame in (_not_mended(was, one, mended), now))
    return _told(one, was.join(now, [*one.key, "said"], "left_anti").join(now, one.key, "left_semi"))


def _added(held: StreamTables, one: RereadIds, mended: Collection[str]) -> DataFrame:
    was, now = _then_and_now(held, one)
    column = one.table.streams[one.stream.name]
    more = _not_mended(now, one, mended).join(was.select(*one.key), one.key, "left_anti")
    return _told(one, more.join(was.select(column), column, "left_semi"))


def _then_and_now(held: StreamTables, one: RereadIds) -> tuple[DataFrame, DataFrame]:
    """Rows with the ids that were read again, as the release before and as bronze has them."""
    before = held.before(one.table.name)
    assert before is not None, "a snapshot whose files were told apart is there"
    column = one.table.streams[one.stream.name]
    again = held.spark.read.parquet(*one.files).where(_is_closed(held, one.stream, one.table)).select(column)
    was, now = (
        frame.where(f.col(column).between(one.least, one.last)).join(again.distinct(), column, "left_semi")
        for frame in (before, held.spark.table(f"bronze.{one.table.name}"))
    )
    return was, now


def _not_mended(rows: DataFrame, one: RereadIds, mended: Collection[str]) -> DataFrame:
    return rows.where(~f.expr(key_range_spark_sql(one.table)).isin(*mended)) if mended else rows


def _told(one: RereadIds, rows: DataFrame) -> DataFrame:
    id_ = f.col(one.table.streams[one.stream.name]).cast("bigint") * one.stream.direction
    return rows.select(
        f.lit(one.stream.name).alias("stream"),
        f.lit(one.table.name).alias("table_name"),
        id_.alias("id"),
        f.lit(Evidence.ACCEPTED_ROW.value).alias("witness"),
        f.lit(None).cast("string").alias("explanation"),
    ).distinct()


def _is_closed(held: StreamTables, stream: Stream, table: Table) -> Column:
    bound = held.bound(stream)
    assert bound is not None
    return f.col(table.streams[stream.name]).between(min(bound, 0), max(bound, 0))


def _newer_files(held: StreamTables, stream: Stream, table: Table) -> tuple[str, ...]:
    """Data files that were added since the release before and may hold closed ids; none where it is forgotten."""
    lake, name = load_iceberg_table(held.spark, f"bronze.{table.name}"), f"bronze.{table.name}"
    accepted = held.accepted.tables.get(name) if held.accepted else None
    then = lake.snapshot(accepted) if accepted is not None else None
    bound, column = held.bound(stream), table.streams[stream.name]
    if then is None or bound is None:
        return ()
    expressions = get_iceberg_class(held.spark, "expressions.Expressions")
    is_closed = getattr(expressions, "and")(
        expressions.greaterThanOrEqual(column, min(bound, 0)), expressions.lessThanOrEqual(column, max(bound, 0))
    )
    scan = lake.newScan().useSnapshot(held.snapshots[table.name]).filter(is_closed)
    files = (task.file() for task in iterate_java(scan.planFiles()))
    # Compaction keeps the sequence number, so what it rewrote is as old as it was.
    return tuple(str(file.location()) for file in files if file.dataSequenceNumber() > then.sequenceNumber())
