"""Who wrote the rows of a fault, for those who are told of it."""

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.streams.gaps.classify import GapClass, StreamGap
from synapse_lakehouse.streams.positions.writers import default_writer
from synapse_lakehouse.streams.stream_tables import StreamTables

_MOST: Final = 5


def find_responsible_writers(
    held: StreamTables, writers: Mapping[str, Collection[str]], stream: Stream, gap: StreamGap
) -> list[str]:
    """Writers of the rows with the ids of ``gap``, a few at most: as the release before has them where they are lost.

    None are known where several tables share the ids, where a table does not say who writes, and of rows that only
    others tell of.

    :param writers: by stream, who writes it.
    """
    table = next((one for one, _ in held.catalogue.backing_tables(stream.name) if one.name == gap.table), None)
    if table is None or not table.writer_column:
        return []
    rows = held.before(table.name) if gap.verdict is GapClass.LOST else held.spark.table(f"bronze.{table.name}")
    if rows is None:
        return []
    # Files of other ids are not read.
    ids = f.col(table.streams[stream.name]).between(
        *sorted((stream.direction * gap.first, stream.direction * gap.last))
    )
    writer = f.coalesce(table.writer_column, f.lit(default_writer(writers.get(stream.name, ())))).alias("writer")
    found = rows.where(ids).select(writer).distinct().limit(_MOST).collect()
    return sorted(row.writer for row in found)
