"""The streams' bronze tables: on the run's branch, and in the previous release."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.catalogue import Catalogue, Stream, Table
from synapse_lakehouse.iceberg.read import changed_rows
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import input_fingerprint

_TASKS_PER_CORE: Final = 4
_MINIMUM_TASKS: Final = 16

LARGE_TABLE_ROWS: Final = 100_000
"""In a smaller table, comparing all rows is faster than reading the changed rows."""
MAXIMUM_CHANGED_IDS: Final = 500_000
"""Maximum number of changed IDs, or of hashes of keys, that are passed to Spark. Each takes 70 bytes in the driver."""


@dataclass(frozen=True)
class StreamTables:
    """The bronze tables of a run. ``previous``: the previous release. ``snapshots``: Iceberg snapshot ID by table."""

    spark: SparkSession
    catalogue: Catalogue
    previous: Release | None
    snapshots: Mapping[str, int]
    catalog: Catalog
    _changed_ids: dict[tuple[str, str, frozenset[int | None]], pa.Array | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def query(self, selects: Sequence[str]) -> DataFrame:
        """Return the union of all ``selects``. Spark plans one statement many times faster than a union of frames.

        Coalescing lets a task read several small tables. Each task contains the plan of all tables, so few tasks are
        better. ``defaultParallelism`` may be too low on a cluster that is starting.
        """
        rows = self.spark.sql(" union all ".join(selects))
        return rows.coalesce(max(_TASKS_PER_CORE * self.spark.sparkContext.defaultParallelism, _MINIMUM_TASKS))

    def current(self, name: str, *columns: str) -> DataFrame:
        """Return columns of a bronze table on the run's branch; no rows if the catalogue lacks the table."""
        if name in {table.name for table in self.catalogue.copied_tables()}:
            return self.spark.table(f"bronze.{name}").select(*columns)
        return self.spark.createDataFrame([], ", ".join(f"{column} string" for column in columns))

    def previous_version(self, name: str) -> DataFrame | None:
        """Return the table as in the previous release; None if the release lacks it, or its snapshot has expired."""
        snapshot = self.snapshot_in(self.previous, name)
        return None if snapshot is None else self.spark.read.option("versionAsOf", snapshot).table(f"bronze.{name}")

    def snapshot_in(self, release: Release | None, name: str) -> int | None:
        """Return a table's Iceberg snapshot ID in ``release``; None if the release lacks it or the snapshot expired."""
        snapshot = release.tables.get(f"bronze.{name}") if release else None
        exists = (
            snapshot is not None and load_iceberg_table(self.spark, f"bronze.{name}").snapshot(snapshot) is not None
        )
        return snapshot if exists else None

    def is_changed_sql(self, stream: Stream, table: Table, releases: Sequence[Release | None]) -> str:
        """Return the SQL condition that a row, judged by its ID, may have changed since one of ``releases``.

        New and deleted rows count as changed. The condition avoids a comparison of all rows of a large table. It is
        always true for small tables, and for tables whose changes cannot be determined.
        """
        column = table.streams[stream.name]
        previous = {release.tables.get(f"bronze.{table.name}") if release else None for release in releases}
        key = (table.name, column, frozenset(previous))
        if key not in self._changed_ids:
            self._changed_ids[key] = self._find_changed_ids(table.name, column, previous)
        ids = self._changed_ids[key]
        if ids is None:
            return "true"
        ids = ids.filter(pc.less(ids, 0) if stream.sign == "negative" else pc.greater_equal(ids, 0))
        if not len(ids):
            return "false"
        view, ends = f"changed_ids_of_{stream.name}_in_{table.name}", pc.min_max(ids).as_py()
        self.spark.createDataFrame(pa.table({"id": ids})).createOrReplaceTempView(view)
        # The range lets Iceberg skip data files.
        return f"{column} between {ends['min']} and {ends['max']} and {column} in (select id from {view})"  # noqa: S608

    def _find_changed_ids(self, name: str, column: str, previous: Collection[int | None]) -> pa.Array | None:
        snapshot = self.catalog.load_table(f"bronze.{name}").snapshot_by_id(self.snapshots.get(name, -1))
        rows = input_fingerprint.get_snapshot_property(snapshot, "total-records")
        if int(rows or 0) < LARGE_TABLE_ROWS:
            return None
        changed = [self.changed_rows(name, snapshot_id) for snapshot_id in previous]
        frames = [frame.select(f.col(column).cast("bigint").alias("id")) for frame in changed if frame is not None]
        if not frames or len(frames) < len(changed):
            return None
        ids = union_all(frames).where("id is not null").distinct().limit(MAXIMUM_CHANGED_IDS + 1).toArrow()["id"]
        return ids.combine_chunks() if len(ids) <= MAXIMUM_CHANGED_IDS else None

    def changed_rows(self, name: str, since: int | None) -> DataFrame | None:
        """Return the rows of a bronze table that changed since an Iceberg snapshot; None if this cannot be determined.

        Their columns are those of :func:`changed_rows.read_rows_changed_since`.
        """
        if since is None or name not in self.snapshots:
            return None
        table = self.catalog.load_table(f"bronze.{name}")
        return changed_rows.read_rows_changed_since(self.spark, table, since, self.snapshots[name])

    def list_changed_stream_tables(self) -> list[tuple[Stream, Table, DataFrame]]:
        """Return each changed table, with its stream and its rows in the previous release."""
        changed = self.changed_tables()
        return [
            (stream, table, previous)
            for stream, table in self.catalogue.stream_table_pairs()
            if table.name in changed and (previous := self.previous_version(table.name)) is not None
        ]

    def changed_tables(self) -> set[str]:
        """Return the names of the tables that this run changed."""
        published = self.previous.tables if self.previous else {}
        return {name for name, snapshot in self.snapshots.items() if published.get(f"bronze.{name}") != snapshot}

    def previous_bound(self, stream: Stream) -> int | None:
        """Return the stream's safe bound in the previous release; None without one, or if rows may change below it."""
        return self.previous.positions.get(stream.name) if self.previous and stream.immutable_below_bound else None


def select_sql(table: Table, columns: Mapping[str, str], condition: str = "true", at: int | None = None) -> str:
    """Return a SELECT of ``columns`` (SQL by name) from a bronze table on the run's branch or at snapshot ``at``."""
    select_list = ", ".join(f"{sql} as {name}" for name, sql in columns.items())
    version = "" if at is None else f" version as of {at}"
    return f"select {select_list} from bronze.{table.name}{version} where {condition}"  # noqa: S608 - of the catalogue


def id_columns_sql(stream: Stream, table: Table) -> dict[str, str]:
    """Return the SQL of the columns stream, table_name and id."""
    return {
        "stream": f"'{stream.name}'",
        "table_name": f"'{table.name}'",
        "id": f"cast({table.streams[stream.name]} as bigint)",
    }


def distance_sql(stream: Stream, table: Table) -> str:
    """Return SQL of the IDs of ``stream`` in ``table`` without their sign."""
    return f"{id_columns_sql(stream, table)['id']} * {stream.direction}"


def is_beyond_sql(stream: Stream, table: Table, end: int) -> str:
    """Return the SQL condition that a row's ID is further from zero than ``end``. It lets Iceberg skip files."""
    column = table.streams[stream.name]
    return f"{column} > {end}" if stream.direction > 0 else f"{column} < {-end}"


def is_of_stream_sql(stream: Stream, table: Table) -> str:
    """Return the SQL condition that the row belongs to ``stream``. Rows without an ID belong to the positive stream."""
    column = table.streams[stream.name]
    return f"{column} < 0" if stream.sign == "negative" else f"({column} is null or {column} >= 0)"


def belongs_to_stream_sql(stream: Stream, table: Table) -> str:
    """Return the SQL condition that the row belongs to ``stream`` and has an ID."""
    return f"{table.streams[stream.name]} is not null and {is_of_stream_sql(stream, table)}"


def union_all(frames: Sequence[DataFrame]) -> DataFrame:
    """Return all rows of ``frames``, a list that is not empty."""
    return reduce(DataFrame.unionAll, frames)
