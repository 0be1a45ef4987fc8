"""What bronze holds of the streams on a run's branch, and what the release before holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Catalogue, Load, Stream, Table
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.lake.session import iceberg_table


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


def distance(stream: Stream, table: Table) -> Column:
    """The ids of ``stream`` in ``table`` without their sign."""
    return f.col(table.streams[stream.name]).cast("bigint") * stream.direction


def of_sign(stream: Stream, table: Table) -> Column:
    """Whether a row of ``table`` is of ``stream``; one without an id is of the positive stream."""
    column = f.col(table.streams[stream.name])
    return column < 0 if stream.sign == "negative" else column.isNull() | (column >= 0)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of ``frames``, which are not none."""
    return reduce(DataFrame.unionAll, frames)
