"""Count the ids of every stream in each table of bronze that holds some: all of them, late ones and the interval's own.

All tables are counted in one query, whatever their number: a homeserver has many tables and most are small.
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
from synapse_lakehouse.streams.positions.writers import default_writer
from synapse_lakehouse.streams.sql import ID_COUNTS
from synapse_lakehouse.streams.stream_tables import (
    StreamTables,
    distance_sql,
    has_id_sql,
    id_columns_sql,
    is_of_stream_sql,
    select_sql,
)

_RECEIVED = "received_ts"
_COUNTS = ("rows", "ids", "null_ids")

Pair = tuple[Stream, Table]


@dataclass(frozen=True)
class StreamFactCounter:
    """What the ids of one run are counted in.

    ``writers``: who writes a stream, as far as that is known. ``earlier``: releases of this interval, each after the
    one before it. Of rows without ``received_ts``, those are of the interval that this run or one of these saw first.
    ``facts_before``: rows of ``audit.stream_facts`` of the release before, by stream and table.
    """

    held: StreamTables
    run: Run
    writers: Mapping[str, Collection[str]]
    earlier: Sequence[tuple[Release | None, Release]]
    facts_before: Mapping[tuple[str, str], Mapping[str, Any]]

    def stream_facts(self) -> list[dict[str, Any]]:
        """Rows of ``audit.stream_facts`` for the tables that bronze holds; of most unchanged ones they are known."""
        known = [(*pair, self._known_fact(*pair)) for pair in self.held.catalogue.stream_table_pairs()]
        unknown = [(stream, table) for stream, table, fact in known if fact is None]
        counted, news = self._counted(unknown), self._news(unknown)
        return [
            fact or self._stream_fact(stream, table, counted.get((stream.name, table.name), []), news)
            for stream, table, fact in known
        ]

    @property
    def _is_first(self) -> bool:
        """Whether no run before could have seen anything."""
        return not (self.held.accepted or self.earlier)

    def _known_fact(self, stream: Stream, table: Table) -> dict[str, Any] | None:
        """What the release before says of a table that is as it was; None where this interval may count other ids."""
        before = self.facts_before.get((stream.name, table.name))
        accepted = self.held.accepted
        if before is None or accepted is None or table.name in self.held.changed_names():
            return None
        is_interval = (accepted.interval_start, accepted.interval_end) == (self.run.start, self.run.end)
        if not is_interval and (self.earlier or _knows_when(table)):
            return None
        names = ("stream", "table_name", *_COUNTS, "first_id", "last_id", "rows_by_writer")
        return {name: before[name] for name in names} | {
            "rows_in_interval": before["rows_in_interval"] if is_interval else 0,
            # Not as it was told: what somebody acknowledged once is still there.
            "duplicate_ids": before["rows"] - before["null_ids"] - before["ids"],
            "late_ids": None if self.held.bound(stream) is None else 0,
            "measured_at": datetime.now(UTC),
        }

    def _counted(self, pairs: Sequence[Pair]) -> dict[tuple[str, str], list[Any]]:
        """Rows of :data:`queries.COUNTED`, by stream and table."""
        found: dict[tuple[str, str], list[Any]] = {}
        if pairs:
            self.held.rows([self._ids(stream, table) for stream, table in pairs]).createOrReplaceTempView("counted_ids")
            for row in self.held.spark.sql(ID_COUNTS).collect():
                found.setdefault((row.stream, row.table_name), []).append(row)
        return found

    def _ids(self, stream: Stream, table: Table) -> str:
        """Columns: stream, table_name, id, writer (empty: none is named), is_received (in the interval; NULL: nobody
        knows)."""
        start, end = (int(moment.timestamp() * 1000) for moment in (self.run.start, self.run.end))
        within = f"{_RECEIVED} >= {start} and {_RECEIVED} < {end}" if _knows_when(table) else "cast(null as boolean)"
        writer = f"coalesce({table.writer_column}, '')" if table.writer_column else "''"
        asked = {"writer": writer, "is_received": within}
        return select_sql(table, id_columns_sql(stream, table) | asked, is_of_stream_sql(stream, table))

    def _news(self, pairs: Sequence[Pair]) -> dict[tuple[str, str], Any]:
        """By stream and table that has any: ``late_ids``, and how many rows without a time are of the interval."""
        if not pairs or self._is_first:
            return {}
        before = [one for pair in self.earlier for one in pair] + [self.held.accepted]
        may_be_new = {
            (stream.name, table.name): f"{has_id_sql(stream, table)} and {self.held.is_other(stream, table, before)}"
            for stream, table in pairs
        }
        new = [self._new(stream, table, may_be_new[stream.name, table.name]) for stream, table in pairs]
        ids = self._mark_known(self.held.rows(new), may_be_new, self.held.accepted, "accepted")
        is_first_seen = ~f.col("accepted")
        for number, (former, one) in enumerate(self.earlier):
            ids = self._mark_known(ids, may_be_new, former, f"before_{number}")
            ids = self._mark_known(ids, may_be_new, one, f"after_{number}")
            is_known = f.col(f"before_{number}") | f.col("table_name").isin(*self._forgotten(former))
            is_first_seen |= f.col(f"after_{number}") & ~is_known
        is_late = f.col("is_below") & ~f.col("accepted")
        counted = (
            ids.groupBy("stream", "table_name")
            .agg(
                f.count_if(is_first_seen & f.col("is_timeless")).alias("first_seen"),
                f.count_distinct(f.when(is_late, f.col("id"))).alias("late_ids"),
            )
            .collect()
        )
        return {(row.stream, row.table_name): row for row in counted}

    def _new(self, stream: Stream, table: Table, may_be_new: str) -> str:
        """Columns: stream, table_name, id, is_below, is_timeless."""
        bound = self._accepted_bound(stream, table)
        below = "false" if bound is None else f"{distance_sql(stream, table)} <= {stream.direction * bound}"
        timeless = f"{_RECEIVED} is null" if _knows_when(table) else "true"
        asked = {"is_below": f"coalesce({below}, false)", "is_timeless": timeless}
        return select_sql(table, id_columns_sql(stream, table) | asked, may_be_new)

    def _mark_known(
        self, ids: DataFrame, may_be_new: Mapping[tuple[str, str], str], release: Release | None, mark: str
    ) -> DataFrame:
        """``ids`` with a boolean column ``mark``: whether ``release`` has the id in the same table of the stream.

        Maintenance gives up old releases, and with them what a table held then; its ids then count as unknown.

        :param may_be_new: SQL of which rows ``ids`` are of, by stream and table.
        """
        published = release.tables if release else {}
        held = [
            (stream, table)
            for stream, table in self.held.catalogue.stream_table_pairs()
            if (stream.name, table.name) in may_be_new and self.held.remembered(table.name, release) is not None
        ]
        unchanged = {
            table.name for _, table in held if published[f"bronze.{table.name}"] == self.held.snapshots.get(table.name)
        }
        is_unchanged = f.col("table_name").isin(*unchanged)
        known = [
            select_sql(
                table,
                id_columns_sql(stream, table),
                may_be_new[stream.name, table.name],
                at=published[f"bronze.{table.name}"],
            )
            for stream, table in held
            if table.name not in unchanged
        ]
        if not known:
            return ids.withColumn(mark, is_unchanged)
        there = self.held.rows(known).distinct().withColumn("_known", f.lit(True))
        marked = ids.join(there, ["stream", "table_name", "id"], "left")
        return marked.withColumn(mark, is_unchanged | f.coalesce("_known", f.lit(False))).drop("_known")

    def _forgotten(self, release: Release | None) -> list[str]:
        published = release.tables if release else {}
        names = {
            table.name for _, table in self.held.catalogue.stream_table_pairs() if f"bronze.{table.name}" in published
        }
        return sorted(name for name in names if self.held.remembered(name, release) is None)

    def _stream_fact(
        self, stream: Stream, table: Table, rows: Sequence[Any], news: Mapping[tuple[str, str], Any]
    ) -> dict[str, Any]:
        total = next(
            (row.asDict() for row in rows if row.is_total), dict.fromkeys((*_COUNTS, "received", "timeless"), 0)
        )
        new = news.get((stream.name, table.name))
        by_writer = Counter[str]()
        for row in rows:
            if not row.is_total:
                by_writer[row.writer or default_writer(self.writers.get(stream.name, ()))] += row.rows
        first_seen = total["timeless"] if self._is_first else new.first_seen if new else 0
        return {
            "stream": stream.name,
            "table_name": table.name,
            **{name: total[name] for name in _COUNTS},
            "rows_in_interval": total["received"] + first_seen,
            "duplicate_ids": total["rows"] - total["null_ids"] - total["ids"],
            "late_ids": None if self.held.bound(stream) is None else new.late_ids if new else 0,
            "first_id": total.get("first_id"),
            "last_id": total.get("last_id"),
            "rows_by_writer": sorted(by_writer.items()),
            "measured_at": datetime.now(UTC),
        }

    def _accepted_bound(self, stream: Stream, table: Table) -> int | None:
        """The bound that no new id may undercut; None for a table that the release before did not have."""
        is_known = self.held.accepted is not None and f"bronze.{table.name}" in self.held.accepted.tables
        return self.held.bound(stream) if is_known else None


def _knows_when(table: Table) -> bool:
    return _RECEIVED in {one.name for one in table.columns}
