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
_COUNTS = ("rows", "ids", "null_ids", "rows_in_interval")

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Measuring:
    """What the measures of one run are taken from.

    ``accepted``: the release whose bounds no new id may undercut. ``baseline``: the release before this interval's
    first one; ids that it lacks are the interval's, where a table has no ``received_ts``.
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
        rows = _of_sign(self.spark.table(f"bronze.{table.name}"), column, stream).select(
            f.col(column).alias("id"),
            (f.coalesce(f.col(table.writer_column), f.lit(MASTER)) if table.writer_column else f.lit(MASTER)).alias(
                "writer"
            ),
            (f.col("received_ts") if "received_ts" in {one.name for one in table.columns} else f.lit(None)).alias("at"),
        )
        late, is_late = self._late(rows, stream, table, column)
        recent, is_recent = self._of_interval(late, table, column)
        by_writer = (
            recent.cube("writer")
            .agg(
                f.grouping("writer").alias("is_total"),
                f.count(f.lit(1)).alias("rows"),
                f.count_if(f.col("id").isNull()).alias("null_ids"),
                f.count_distinct("id").alias("ids"),
                f.min("id").alias("first_id"),
                f.max("id").alias("last_id"),
                f.count_if(is_recent).alias("rows_in_interval"),
                f.count_distinct(f.when(is_late, f.col("id"))).alias("late_ids"),
            )
            .collect()
        )
        total = next((one.asDict() for one in by_writer if one.is_total), dict.fromkeys(_COUNTS, 0))
        return {
            "stream": stream.name,
            "table_name": table.name,
            **{name: total[name] for name in _COUNTS},
            "duplicate_ids": total["rows"] - total["null_ids"] - total["ids"],
            "late_ids": total.get("late_ids", 0) if self._bound(stream) is not None else None,
            "first_id": total.get("first_id"),
            "last_id": total.get("last_id"),
            "rows_by_writer": [(one.writer, one.rows) for one in by_writer if not one.is_total],
            "measured_at": datetime.now(UTC),
        }

    def _late(self, rows: DataFrame, stream: Stream, table: Table, column: str) -> tuple[DataFrame, Column]:
        """Rows with a mark for new ids at or below the accepted bound."""
        bound, before = self._bound(stream), self._ids_at(self.accepted, table, column)
        if bound is None or before is None:
            return rows, f.lit(False)
        marked = rows.join(before.withColumnRenamed("known", "accepted"), f.col("id") == f.col("accepted"), "left")
        below = f.col("id") >= bound if stream.sign == "negative" else f.col("id") <= bound
        return marked, below & f.col("accepted").isNull()

    def _of_interval(self, rows: DataFrame, table: Table, column: str) -> tuple[DataFrame, Column]:
        """Rows with a mark for those of the run's interval."""
        if "received_ts" in {one.name for one in table.columns}:
            start, end = (int(moment.timestamp() * 1000) for moment in (self.run.start, self.run.end))
            return rows, (f.col("at") >= start) & (f.col("at") < end)
        before = self._ids_at(self.baseline, table, column)
        if before is None:
            return rows, f.lit(True)
        return rows.join(before, f.col("id") == f.col("known"), "left"), f.col("known").isNull()

    def _bound(self, stream: Stream) -> int | None:
        if not (self.accepted and stream.immutable_below_bound):
            return None
        return self.accepted.positions.get(stream.name)

    def _ids_at(self, release: Release | None, table: Table, column: str) -> DataFrame | None:
        """Distinct ids, as ``known``, that a table held at a release; None where there is no such state."""
        snapshot = release.tables.get(f"bronze.{table.name}") if release else None
        if snapshot is None:
            return None
        before = self.spark.read.option("snapshot-id", snapshot).table(f"bronze.{table.name}")
        return before.select(f.col(column).alias("known")).distinct()

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
            "select max(id)"
            " from (select id, row_number() over (order by id) as n from (select distinct id from beyond))"
            " where id = :minimum + n",
            args={"minimum": sign * minimum},
        ).collect()[0][0]
        return minimum if end is None else sign * int(end)


def _of_sign(rows: DataFrame, column: str, stream: Stream) -> DataFrame:
    if stream.sign == "negative":
        return rows.where(f.col(column) < 0)
    return rows.where(f.col(column).isNull() | (f.col(column) >= 0))


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
