"""Find the writers of a fault's rows, for alerts."""

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.streams.gaps.classify import GapClass, StreamGap
from synapse_lakehouse.streams.positions.configured_writers import default_writer
from synapse_lakehouse.streams.stream_tables import StreamTables

_MAXIMUM_WRITERS: Final = 5


def find_responsible_writers(
    tables: StreamTables, writers: Mapping[str, Collection[str]], stream: Stream, gap: StreamGap
) -> list[str]:
    """Return at most five writers of the rows with the IDs of ``gap``. Lost rows are read from the previous release.

    The list is empty if several tables share the IDs, if the table records no writers, or if only rows of other tables
    show that the row existed.

    :param writers: by stream, its likely writers.
    """
    table = next(
        (backing for backing, _ in tables.catalogue.backing_tables(stream.name) if backing.name == gap.table), None
    )
    if table is None or not table.writer_column:
        return []
    is_lost = gap.gap_class is GapClass.LOST
    rows = tables.previous_version(table.name) if is_lost else tables.spark.table(f"bronze.{table.name}")
    if rows is None:
        return []
    # The filter is on the column itself, not on the distance, so that Iceberg skips data files.
    ends = sorted((stream.direction * gap.first, stream.direction * gap.last))
    is_in_gap = f.col(table.streams[stream.name]).between(*ends)
    writer = f.coalesce(table.writer_column, f.lit(default_writer(writers.get(stream.name, ())))).alias("writer")
    names = rows.where(is_in_gap).select(writer).distinct().limit(_MAXIMUM_WRITERS).collect()
    return sorted(row.writer for row in names)
