"""Count each stream's IDs in each of its bronze tables: all IDs, late IDs, and rows of the data interval.

One query counts all tables, because most of a homeserver's many tables are small.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.catalogue import Stream, Table
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.streams.positions.configured_writers import default_writer
from synapse_lakehouse.streams.sql import ID_COUNTS
from synapse_lakehouse.streams.stream_tables import (
    StreamTables,
    belongs_to_stream_sql,
    distance_sql,
    id_columns_sql,
    is_of_stream_sql,
    select_sql,
)

_RECEIVED = "received_ts"
_COUNTS = ("rows", "ids", "null_ids")

Pair = tuple[Stream, Table]


@dataclass(frozen=True)
class StreamFactCounter:
    """Counts the IDs of one run's streams.

    * ``writers``: the likely writers of each stream.
    * ``earlier``: earlier releases of the same data interval, each as a pair of its predecessor and itself. A row
      without ``received_ts`` belongs to the interval if this run, or one of these releases, is the first that has it.
    * ``previous_facts``: the previous release's rows of ``audit.stream_facts``, by stream and table.
    """

    tables: StreamTables
    run: Run
    writers: Mapping[str, Collection[str]]
    earlier: Sequence[tuple[Release | None, Release]]
    previous_facts: Mapping[tuple[str, str], Mapping[str, Any]]

    def count(self) -> list[dict[str, Any]]:
        """Return rows of ``audit.stream_facts`` for bronze's tables. Most unchanged tables are not counted again."""
        facts = [(*pair, self._unchanged_fact(*pair)) for pair in self.tables.catalogue.stream_table_pairs()]
        uncounted = [(stream, table) for stream, table, fact in facts if fact is None]
        counts, new_counts = self._count_ids(uncounted), self._count_new_ids(uncounted)
        return [
            fact or self._fact(stream, table, counts.get((stream.name, table.name), []), new_counts)
            for stream, table, fact in facts
        ]

    @property
    def _is_first_run(self) -> bool:
        """Whether there is no earlier release to compare with."""
        return not (self.tables.previous or self.earlier)

    def _unchanged_fact(self, stream: Stream, table: Table) -> dict[str, Any] | None:
        """Return the previous release's fact of an unchanged table; None if the IDs must be counted again."""
        fact = self.previous_facts.get((stream.name, table.name))
        previous = self.tables.previous
        if fact is None or previous is None or table.name in self.tables.changed_tables():
            return None
        is_same_interval = (previous.interval_start, previous.interval_end) == (self.run.start, self.run.end)
        if not is_same_interval and (self.earlier or _has_received_ts(table)):
            return None
        names = ("stream", "table_name", *_COUNTS, "first_id", "last_id", "rows_by_writer")
        return {name: fact[name] for name in names} | {
            "rows_in_interval": fact["rows_in_interval"] if is_same_interval else 0,
            # The release's own value does not contain acknowledged duplicates, which must still be counted here.
            "duplicate_ids": fact["rows"] - fact["null_ids"] - fact["ids"],
            "late_ids": None if self.tables.previous_bound(stream) is None else 0,
            "measured_at": datetime.now(UTC),
        }

    def _count_ids(self, pairs: Sequence[Pair]) -> dict[tuple[str, str], list[Any]]:
        """Return the rows of :data:`sql.ID_COUNTS`, by stream and table."""
        counts: dict[tuple[str, str], list[Any]] = {}
        if pairs:
            ids = self.tables.query([self._ids_sql(stream, table) for stream, table in pairs])
            ids.createOrReplaceTempView("counted_ids")
            for row in self.tables.spark.sql(ID_COUNTS).collect():
                counts.setdefault((row.stream, row.table_name), []).append(row)
        return counts

    def _ids_sql(self, stream: Stream, table: Table) -> str:
        """Return a SELECT: stream, table_name, id, writer or "", is_received (in the interval; NULL if unknown)."""
        start, end = (int(moment.timestamp() * 1000) for moment in (self.run.start, self.run.end))
        in_interval = f"{_RECEIVED} >= {start} and {_RECEIVED} < {end}"
        is_received = in_interval if _has_received_ts(table) else "cast(null as boolean)"
        writer = f"coalesce({table.writer_column}, '')" if table.writer_column else "''"
        columns = id_columns_sql(stream, table) | {"writer": writer, "is_received": is_received}
        return select_sql(table, columns, is_of_stream_sql(stream, table))

    def _count_new_ids(self, pairs: Sequence[Pair]) -> dict[tuple[str, str], Any]:
        """Return counts by stream and table: ``late_ids``, ``first_seen`` (new rows without a time of receipt)."""
        if not pairs or self._is_first_run:
            return {}
        releases = [release for pair in self.earlier for release in pair] + [self.tables.previous]
        may_be_new = {
            (stream.name, table.name): (
                f"{belongs_to_stream_sql(stream, table)} and {self.tables.is_changed_sql(stream, table, releases)}"
            )
            for stream, table in pairs
        }
        new = [self._new_ids_sql(stream, table, may_be_new[stream.name, table.name]) for stream, table in pairs]
        ids = self._mark_contained(self.tables.query(new), may_be_new, self.tables.previous, "accepted")
        is_first_seen = ~f.col("accepted")
        for number, (predecessor, release) in enumerate(self.earlier):
            ids = self._mark_contained(ids, may_be_new, predecessor, f"before_{number}")
            ids = self._mark_contained(ids, may_be_new, release, f"after_{number}")
            was_contained = f.col(f"before_{number}") | f.col("table_name").isin(*self._expired_tables(predecessor))
            is_first_seen |= f.col(f"after_{number}") & ~was_contained
        is_late = f.col("is_below") & ~f.col("accepted")
        counts = ids.groupBy("stream", "table_name").agg(
            f.count_if(is_first_seen & f.col("is_timeless")).alias("first_seen"),
            f.count_distinct(f.when(is_late, f.col("id"))).alias("late_ids"),
        )
        return {(row.stream, row.table_name): row for row in counts.collect()}

    def _new_ids_sql(self, stream: Stream, table: Table, may_be_new: str) -> str:
        """Return a SELECT: stream, table_name, id, is_below (not above the bound), is_timeless (no receipt time)."""
        bound = self._closed_bound(stream, table)
        is_below = "false" if bound is None else f"{distance_sql(stream, table)} <= {stream.direction * bound}"
        is_timeless = f"{_RECEIVED} is null" if _has_received_ts(table) else "true"
        flags = {"is_below": f"coalesce({is_below}, false)", "is_timeless": is_timeless}
        return select_sql(table, id_columns_sql(stream, table) | flags, may_be_new)

    def _mark_contained(
        self, ids: DataFrame, may_be_new: Mapping[tuple[str, str], str], release: Release | None, mark: str
    ) -> DataFrame:
        """Return ``ids`` with the boolean column ``mark``: whether the same table in ``release`` contains the ID.

        The column is false for a table whose Iceberg snapshot in the release has expired.

        :param ids: stream, table_name and id of rows on the run's branch, and other columns.
        :param may_be_new: the SQL condition with which ``ids`` were read, by stream and table.
        """
        published = release.tables if release else {}
        pairs = [
            (stream, table)
            for stream, table in self.tables.catalogue.stream_table_pairs()
            if (stream.name, table.name) in may_be_new and self.tables.snapshot_in(release, table.name) is not None
        ]
        snapshots = {table.name: published[f"bronze.{table.name}"] for _, table in pairs}
        unchanged = {name for name, snapshot in snapshots.items() if snapshot == self.tables.snapshots.get(name)}
        is_unchanged = f.col("table_name").isin(*unchanged)
        selects = [
            select_sql(
                table, id_columns_sql(stream, table), may_be_new[stream.name, table.name], at=snapshots[table.name]
            )
            for stream, table in pairs
            if table.name not in unchanged
        ]
        if not selects:
            return ids.withColumn(mark, is_unchanged)
        contained = self.tables.query(selects).distinct().withColumn("_contained", f.lit(True))
        marked = ids.join(contained, ["stream", "table_name", "id"], "left")
        return marked.withColumn(mark, is_unchanged | f.coalesce("_contained", f.lit(False))).drop("_contained")

    def _expired_tables(self, release: Release | None) -> list[str]:
        published = release.tables if release else {}
        names = {
            table.name for _, table in self.tables.catalogue.stream_table_pairs() if f"bronze.{table.name}" in published
        }
        return sorted(name for name in names if self.tables.snapshot_in(release, name) is None)

    def _fact(
        self, stream: Stream, table: Table, rows: Sequence[Any], new_counts: Mapping[tuple[str, str], Any]
    ) -> dict[str, Any]:
        zeros: dict[str, Any] = dict.fromkeys((*_COUNTS, "received", "timeless"), 0)
        total = next((row.asDict() for row in rows if row.is_total), zeros)
        new = new_counts.get((stream.name, table.name))
        by_writer = Counter[str]()
        for row in rows:
            if not row.is_total:
                by_writer[row.writer or default_writer(self.writers.get(stream.name, ()))] += row.rows
        first_seen = total["timeless"] if self._is_first_run else new.first_seen if new else 0
        return {
            "stream": stream.name,
            "table_name": table.name,
            **{name: total[name] for name in _COUNTS},
            "rows_in_interval": total["received"] + first_seen,
            "duplicate_ids": total["rows"] - total["null_ids"] - total["ids"],
            "late_ids": None if self.tables.previous_bound(stream) is None else new.late_ids if new else 0,
            "first_id": total.get("first_id"),
            "last_id": total.get("last_id"),
            "rows_by_writer": sorted(by_writer.items()),
            "measured_at": datetime.now(UTC),
        }

    def _closed_bound(self, stream: Stream, table: Table) -> int | None:
        """Return the bound at or below which no new ID may appear; None if the previous release has none."""
        previous = self.tables.previous
        is_contained = previous is not None and f"bronze.{table.name}" in previous.tables
        return self.tables.previous_bound(stream) if is_contained else None


def _has_received_ts(table: Table) -> bool:
    return _RECEIVED in {column.name for column in table.columns}
