"""What bronze holds of the streams on a run's branch, and what the release before holds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.catalogue import Catalogue, Stream, Table
from synapse_lakehouse.iceberg.read import snapshot_diff
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import input_fingerprint

_TASKS_A_CORE: Final = 4
_FEWEST_TASKS: Final = 16

LARGE_TABLE_ROWS: Final = 100_000
"""A table of fewer rows is compared as a whole sooner than what changed in it is told apart."""
_MOST_IDS: Final = 500_000
"""So many are told to Spark one by one, which takes 70 bytes each of the driver's memory."""


@dataclass(frozen=True)
class StreamTables:
    """Bronze now and then. ``accepted``: the release before; ``snapshots``: of the tables that this run copied."""

    spark: SparkSession
    catalogue: Catalogue
    accepted: Release | None
    snapshots: Mapping[str, int]
    lake: Catalog
    _other: dict[tuple[str, str, frozenset[int | None]], pa.Array | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def rows(self, selects: Sequence[str]) -> DataFrame:
        """Rows of all ``selects``: Spark understands one statement in a fraction of the time that frames of each take.

        Tables are mostly small, and each is read in tasks of its own, of which each is told of all tables; so that a
        task reads several, there are not many more than cores. A cluster may not have told of all of its own yet.
        """
        found = self.spark.sql(" union all ".join(selects))
        return found.coalesce(max(_TASKS_A_CORE * self.spark.sparkContext.defaultParallelism, _FEWEST_TASKS))

    def now(self, name: str, *columns: str) -> DataFrame:
        """Columns of a table of bronze on the run's branch; no rows where the catalogue does not have it."""
        if name in {table.name for table in self.catalogue.copied_tables()}:
            return self.spark.table(f"bronze.{name}").select(*columns)
        return self.spark.createDataFrame([], ", ".join(f"{column} string" for column in columns))

    def before(self, name: str) -> DataFrame | None:
        """The table as the release before has it; None where it has not, or no longer."""
        snapshot = self.remembered(name, self.accepted)
        return None if snapshot is None else self.spark.read.option("versionAsOf", snapshot).table(f"bronze.{name}")

    def remembered(self, name: str, release: Release | None) -> int | None:
        """The snapshot that ``release`` has of a table; None where it has none, or where that is gone by now."""
        snapshot = release.tables.get(f"bronze.{name}") if release else None
        known = snapshot is not None and load_iceberg_table(self.spark, f"bronze.{name}").snapshot(snapshot) is not None
        return snapshot if known else None

    def is_other(self, stream: Stream, table: Table, releases: Sequence[Release | None]) -> str:
        """SQL of whether the id of a row is among those whose rows came, went or changed since one of ``releases``.

        So that a large table is not compared as a whole, of which little is new. It may name others, too: those of a
        small table, and of one of which that cannot be told, all are.
        """
        column = table.streams[stream.name]
        then = {release.tables.get(f"bronze.{table.name}") if release else None for release in releases}
        key = (table.name, column, frozenset(then))
        if key not in self._other:
            self._other[key] = self._changed_ids(table.name, column, then)
        ids = self._other[key]
        if ids is None:
            return "true"
        ids = ids.filter(pc.less(ids, 0) if stream.sign == "negative" else pc.greater_equal(ids, 0))
        if not len(ids):
            return "false"
        view, ends = f"other_ids_of_{stream.name}_in_{table.name}", pc.min_max(ids).as_py()
        self.spark.createDataFrame(pa.table({"id": ids})).createOrReplaceTempView(view)
        # Files in which no such id is are not read.
        return f"{column} between {ends['min']} and {ends['max']} and {column} in (select id from {view})"  # noqa: S608

    def _changed_ids(self, name: str, column: str, then: Collection[int | None]) -> pa.Array | None:
        table = self.lake.load_table(f"bronze.{name}")
        snapshot = table.snapshot_by_id(self.snapshots.get(name, -1))
        if (
            snapshot is None
            or int(input_fingerprint.get_snapshot_property(snapshot, "total-records") or 0) < LARGE_TABLE_ROWS
        ):
            return None
        found = [pa.chunked_array([], pa.int64())]
        for one in then:
            changed = (
                None if one is None else snapshot_diff.find_changed_keys(table, one, snapshot.snapshot_id, [column])
            )
            if changed is None:
                return None
            found.append(changed[column].cast(pa.int64()))
        ids = pa.chunked_array([chunk for one in found for chunk in one.chunks], pa.int64()).unique().drop_null()
        return ids if len(ids) <= _MOST_IDS else None

    def changed(self) -> list[tuple[Stream, Table, DataFrame]]:
        """Streams and tables that this run changed, each with what the release before has of it."""
        changed = self.changed_names()
        return [
            (stream, table, before)
            for stream, table in self.catalogue.stream_table_pairs()
            if table.name in changed and (before := self.before(table.name)) is not None
        ]

    def changed_names(self) -> set[str]:
        """Tables that this run changed."""
        published = self.accepted.tables if self.accepted else {}
        return {name for name, snapshot in self.snapshots.items() if published.get(f"bronze.{name}") != snapshot}

    def bound(self, stream: Stream) -> int | None:
        """The bound that was accepted before; None where no id is held against one."""
        return self.accepted.positions.get(stream.name) if self.accepted and stream.immutable_below_bound else None


def select_sql(table: Table, columns: Mapping[str, str], where: str = "true", at: int | None = None) -> str:
    """SQL of ``columns`` (SQL by name) of a table of bronze, by default on the run's branch, or of snapshot ``at``."""
    named = ", ".join(f"{sql} as {name}" for name, sql in columns.items())
    version = "" if at is None else f" version as of {at}"
    return f"select {named} from bronze.{table.name}{version} where {where}"  # noqa: S608 - of the catalogue


def id_columns_sql(stream: Stream, table: Table) -> dict[str, str]:
    """SQL of the columns stream, table_name and id."""
    return {
        "stream": f"'{stream.name}'",
        "table_name": f"'{table.name}'",
        "id": f"cast({table.streams[stream.name]} as bigint)",
    }


def distance_sql(stream: Stream, table: Table) -> str:
    """SQL of the ids of ``stream`` in ``table`` without their sign."""
    return f"{id_columns_sql(stream, table)['id']} * {stream.direction}"


def is_beyond_sql(stream: Stream, table: Table, end: int) -> str:
    """SQL of whether ids of ``stream`` in ``table`` are further from zero than ``end``; other files are not read."""
    column = table.streams[stream.name]
    return f"{column} > {end}" if stream.direction > 0 else f"{column} < {-end}"


def is_of_stream_sql(stream: Stream, table: Table) -> str:
    """SQL of whether a row of ``table`` is of ``stream``; one without an id is of the positive stream."""
    column = table.streams[stream.name]
    return f"{column} < 0" if stream.sign == "negative" else f"({column} is null or {column} >= 0)"


def has_id_sql(stream: Stream, table: Table) -> str:
    """SQL of whether a row of ``table`` is of ``stream`` and has an id."""
    return f"{table.streams[stream.name]} is not null and {is_of_stream_sql(stream, table)}"


def union_all(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of ``frames``, which are not none."""
    return reduce(DataFrame.unionAll, frames)
