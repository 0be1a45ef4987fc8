"""What bronze holds of the streams on a run's branch, and what the release before holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.catalogue import Catalogue, Load, Stream, Table
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.lake.session import iceberg_table

_TASKS_A_CORE: Final = 4
_FEWEST_TASKS: Final = 16


@dataclass(frozen=True)
class Held:
    """Bronze now and then. ``accepted``: the release before; ``snapshots``: of the tables that this run copied."""

    spark: SparkSession
    catalogue: Catalogue
    accepted: Release | None
    snapshots: Mapping[str, int]

    def pairs(self) -> list[tuple[Stream, Table]]:
        """Streams with their tables, as far as these are copied."""
        return [
            (stream, table)
            for stream in self.catalogue.streams
            for table, _ in self.catalogue.backing(stream.name)
            if table.load is not Load.MEASURE
        ]

    def rows(self, selects: Sequence[str]) -> DataFrame:
        """Rows of all ``selects``: Spark understands one statement in a fraction of the time that frames of each take.

        Tables are mostly small, and each is read in tasks of its own, of which each is told of all tables; so that a
        task reads several, there are not many more than cores. A cluster may not have told of all of its own yet.
        """
        found = self.spark.sql(" union all ".join(selects))
        return found.coalesce(max(_TASKS_A_CORE * self.spark.sparkContext.defaultParallelism, _FEWEST_TASKS))

    def now(self, name: str, *columns: str) -> DataFrame:
        """Columns of a table of bronze on the run's branch; no rows where the catalogue does not have it."""
        if name in {table.name for table in self.catalogue.copied()}:
            return self.spark.table(f"bronze.{name}").select(*columns)
        return self.spark.createDataFrame([], ", ".join(f"{column} string" for column in columns))

    def before(self, name: str) -> DataFrame | None:
        """The table as the release before has it; None where it has not, or no longer."""
        snapshot = self.accepted.tables.get(f"bronze.{name}") if self.accepted else None
        if snapshot is None or iceberg_table(self.spark, f"bronze.{name}").snapshot(snapshot) is None:
            return None
        return self.spark.read.option("versionAsOf", snapshot).table(f"bronze.{name}")

    def changed(self) -> list[tuple[Stream, Table, DataFrame]]:
        """Streams and tables that this run changed, each with what the release before has of it."""
        changed = self.changed_names()
        return [
            (stream, table, before)
            for stream, table in self.pairs()
            if table.name in changed and (before := self.before(table.name)) is not None
        ]

    def changed_names(self) -> set[str]:
        """Tables that this run changed."""
        published = self.accepted.tables if self.accepted else {}
        return {name for name, snapshot in self.snapshots.items() if published.get(f"bronze.{name}") != snapshot}

    def bound(self, stream: Stream) -> int | None:
        """The bound that was accepted before; None where no id is held against one."""
        return self.accepted.positions.get(stream.name) if self.accepted and stream.immutable_below_bound else None


def select(table: Table, columns: Mapping[str, str], where: str = "true", at: int | None = None) -> str:
    """SQL of ``columns`` (SQL by name) of a table of bronze, by default on the run's branch, or of snapshot ``at``."""
    named = ", ".join(f"{sql} as {name}" for name, sql in columns.items())
    version = "" if at is None else f" version as of {at}"
    return f"select {named} from bronze.{table.name}{version} where {where}"  # noqa: S608 - of the catalogue


def id_columns(stream: Stream, table: Table) -> dict[str, str]:
    """SQL of the columns stream, table_name and id."""
    return {
        "stream": f"'{stream.name}'",
        "table_name": f"'{table.name}'",
        "id": f"cast({table.streams[stream.name]} as bigint)",
    }


def distance(stream: Stream, table: Table) -> str:
    """SQL of the ids of ``stream`` in ``table`` without their sign."""
    return f"{id_columns(stream, table)['id']} * {stream.direction}"


def of_sign(stream: Stream, table: Table) -> str:
    """SQL of whether a row of ``table`` is of ``stream``; one without an id is of the positive stream."""
    column = table.streams[stream.name]
    return f"{column} < 0" if stream.sign == "negative" else f"({column} is null or {column} >= 0)"


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of ``frames``, which are not none."""
    return reduce(DataFrame.unionAll, frames)
