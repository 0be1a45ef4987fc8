"""Measure the run's branch of bronze with Spark: keys of every table, ids and positions of every stream."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Catalogue, Stream, Table
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.run import Run
from synapse_lakehouse.streams.positions import Bound, Rule, linear_minimum
from synapse_lakehouse.streams.writers import MASTER

_AT_ONCE = 4

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Measuring:
    """What the measures of one run are taken from.

    ``accepted``: the release whose bounds no new id may undercut. ``baseline``: the release before this interval's first
    one; ids that it lacks are the interval's, where a table has no ``received_ts``.
    """

    spark: SparkSession
    catalogue: Catalogue
    run: Run
    writers: Mapping[str, frozenset[str]]
    sequences: Mapping[str, tuple[int, bool]]
    accepted: Release | None
    baseline: Release | None

    def table_facts(self) -> list[dict[str, Any]]:
        """Rows of ``audit.table_facts``."""
        return _in_parallel(self.spark, self._table_facts, self.catalogue.copied())

    def stream_facts(self) -> list[dict[str, Any]]:
        """Rows of ``audit.stream_facts`` for the tables that bronze holds."""
        pairs = [
            (stream, table)
            for stream in self.catalogue.streams
            for table, _ in self.catalogue.backing(stream.name)
            if table in self.catalogue.copied()
        ]
        return _in_parallel(self.spark, lambda pair: self._stream_facts(*pair), pairs)

    def stream_positions(self, facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of ``audit.stream_positions``; ``facts`` are all of the run's stream facts, measured tables included."""
        positions: dict[str, dict[str, int]] = {}
        for row in self.spark.table("bronze.stream_positions").collect():
            positions.setdefault(row.stream_name, {})[row.instance_name] = row.stream_id
        return [
            self._position(
                stream,
                positions.get(stream.stream_positions or "", {}),
                [fact for fact in facts if fact["stream"] == stream.name],
            )
            for stream in self.catalogue.streams
        ]

    def _table_facts(self, table: Table) -> dict[str, Any]:
        key = [f.col(name) for name in table.primary_key]
        required = [f.col(name) for name in table.primary_key if name not in table.nullable_key]
        is_null = _any(column.isNull() for column in required)
        row = (
            self.spark.table(f"bronze.{table.name}")
            .agg(
                f.count(f.lit(1)).alias("rows"),
                f.count_if(is_null).alias("null_keys"),
                f.count_distinct(f.when(~is_null, f.struct(*key))).alias("keys"),
            )
            .collect()[0]
        )
        return {
            "table_name": table.name,
            "rows": row.rows,
            "null_keys": row.null_keys,
            "duplicate_keys": row.rows - row.null_keys - row["keys"],
            "measured_at": datetime.now(UTC),
        }

    def _stream_facts(self, stream: Stream, table: Table) -> dict[str, Any]:
        column = table.streams[stream.name]
        rows = _of_sign(self.spark.table(f"bronze.{table.name}"), column, stream)
        writer = f.coalesce(f.col(table.writer_column), f.lit(MASTER)) if table.writer_column else f.lit(MASTER)
        by_writer = (
            rows.groupBy(writer.alias("writer"))
            .agg(
                f.count(f.lit(1)).alias("rows"),
                f.count_if(f.col(column).isNull()).alias("null_ids"),
                f.min(column).alias("first_id"),
                f.max(column).alias("last_id"),
            )
            .collect()
        )
        total, nulls = sum(one.rows for one in by_writer), sum(one.null_ids for one in by_writer)
        ids = rows.select(f.count_distinct(column)).collect()[0][0]
        return {
            "stream": stream.name,
            "table_name": table.name,
            "rows": total,
            "rows_in_interval": self._rows_in_interval(rows, table, column),
            "ids": ids,
            "null_ids": nulls,
            "duplicate_ids": total - nulls - ids,
            "late_ids": self._late_ids(rows, stream, table, column),
            "first_id": min((one.first_id for one in by_writer if one.first_id is not None), default=None),
            "last_id": max((one.last_id for one in by_writer if one.last_id is not None), default=None),
            "rows_by_writer": [(one.writer, one.rows) for one in by_writer],
            "measured_at": datetime.now(UTC),
        }

    def _rows_in_interval(self, rows: DataFrame, table: Table, column: str) -> int:
        if "received_ts" in rows.columns:
            start, end = (int(moment.timestamp() * 1000) for moment in (self.run.start, self.run.end))
            return rows.where((f.col("received_ts") >= start) & (f.col("received_ts") < end)).count()
        return _missing_from(self._at(self.baseline, table), rows, column).count()

    def _late_ids(self, rows: DataFrame, stream: Stream, table: Table, column: str) -> int | None:
        bound = self.accepted.positions.get(stream.name) if self.accepted else None
        if not stream.immutable_below_bound or bound is None:
            return None
        below = f.col(column) >= bound if stream.sign == "negative" else f.col(column) <= bound
        return (
            _missing_from(self._at(self.accepted, table), rows.where(below), column).select(column).distinct().count()
        )

    def _at(self, release: Release | None, table: Table) -> DataFrame | None:
        snapshot = release.tables.get(f"bronze.{table.name}") if release else None
        if snapshot is None:
            return None
        return self.spark.read.option("snapshot-id", snapshot).table(f"bronze.{table.name}")

    def _position(self, stream: Stream, positions: dict[str, int], facts: list[dict[str, Any]]) -> dict[str, Any]:
        sign = -1 if stream.sign == "negative" else 1
        last_value, is_called = self.sequences[stream.sequence]
        seen = {writer for fact in facts for writer, rows in fact["rows_by_writer"] if rows}
        bound = (
            linear_minimum(positions, self.writers.get(stream.name), seen, sign=sign, is_used=is_called)
            if stream.stream_positions
            else Bound(None, Rule.NO_POSITIONS)
        )
        maximum = None if bound.minimum is None else self._gapless_end(stream, bound.minimum, sign)
        ends = [fact[end] for fact in facts for end in ("first_id", "last_id") if fact[end] is not None]
        return {
            "stream": stream.name,
            "writers": sorted(positions.items()),
            "missing_writers": list(bound.missing),
            "linear_minimum": bound.minimum,
            "linear_maximum": maximum,
            "safe_bound": maximum,
            "rule": bound.rule.value,
            "previous_bound": self.accepted.positions.get(stream.name) if self.accepted else None,
            "sequence": stream.sequence,
            "sequence_last_value": last_value,
            "sequence_is_called": is_called,
            "largest_id": max((sign * end for end in ends), default=None) if sign > 0 else min(ends, default=None),
            "measured_at": datetime.now(UTC),
        }

    def _gapless_end(self, stream: Stream, minimum: int, sign: int) -> int:
        """As :func:`positions.gapless_end`, over ids that need not fit in memory."""
        beyond = None
        for table, column in self.catalogue.backing(stream.name):
            if table in self.catalogue.copied():
                ids = self.spark.table(f"bronze.{table.name}").select((f.col(column) * sign).alias("id"))
                ids = ids.where(f.col("id") > sign * minimum)
                beyond = ids if beyond is None else beyond.union(ids)
        if beyond is None:
            return minimum
        beyond.createOrReplaceTempView("beyond")
        end = self.spark.sql(
            "select max(id) from (select id, row_number() over (order by id) as n from (select distinct id from beyond))"
            " where id = :minimum + n",
            args={"minimum": sign * minimum},
        ).collect()[0][0]
        return minimum if end is None else sign * int(end)


def _of_sign(rows: DataFrame, column: str, stream: Stream) -> DataFrame:
    if stream.sign == "negative":
        return rows.where(f.col(column) < 0)
    return rows.where(f.col(column).isNull() | (f.col(column) >= 0))


def _missing_from(before: DataFrame | None, rows: DataFrame, column: str) -> DataFrame:
    if before is None:
        return rows
    return rows.join(before.select(f.col(column).alias("known")), f.col(column) == f.col("known"), "left_anti")


def _any(conditions: Iterable[Column]) -> Column:
    result = f.lit(False)
    for condition in conditions:
        result = result | condition
    return result


def _in_parallel(
    spark: SparkSession, measure: Callable[[Subject], dict[str, Any]], subjects: Iterable[Subject]
) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(inheritable_thread_target(spark)(measure), subjects))
