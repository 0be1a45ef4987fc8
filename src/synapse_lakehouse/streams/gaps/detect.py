"""Find the missing, late, duplicate and changed IDs of a run's streams with Spark. ``classify`` decides their class.

Missing IDs are searched only among the IDs above the previous safe bound, and vanished rows only in changed tables. The
driver receives one range at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Contiguity, Stream, Table
from synapse_lakehouse.streams.checks import changed_rows
from synapse_lakehouse.streams.gaps import classify, evidence, locate_orphaned_json
from synapse_lakehouse.streams.gaps.classify import (
    Evidence,
    Explanation,
    GapClass,
    MissingIds,
    PresentId,
    StreamGap,
    StreamWindow,
)
from synapse_lakehouse.streams.positions.safe_bound import FIRST_ID, BoundRule
from synapse_lakehouse.streams.sql import EVIDENCE_RANGES, MISSING_RANGES
from synapse_lakehouse.streams.stream_tables import (
    StreamTables,
    distance_sql,
    id_columns_sql,
    is_beyond_sql,
    is_of_stream_sql,
    select_sql,
    union_all,
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class GapDetector:
    """Finds the gaps of one run.

    * ``positions``, ``facts``: the run's rows of ``audit.stream_positions`` and ``audit.stream_facts``.
    * ``row_counts``: number of rows by table. ``previous_row_counts``: these numbers in the previous release.
    * ``previous_read_at``: time at which the previous release read the source, in milliseconds since the epoch.
    * ``comparable``: tables that this run and the previous release read with the same statement.
    * ``repaired``: by table, the key ranges that this run repaired.
    """

    tables: StreamTables
    positions: Sequence[Row]
    facts: Sequence[Row]
    row_counts: Mapping[str, int]
    previous_row_counts: Mapping[str, int] | None
    previous_read_at: int | None
    comparable: frozenset[str]
    repaired: Mapping[str, Sequence[str]]

    def find_gaps(self, announced: DataFrame | None = None) -> Iterator[tuple[Stream, StreamGap]]:
        """Yield all gaps and faults, each with its stream.

        :param announced: rows that a writer announced and that are not stored, with the columns ``ANNOUNCED_COLUMNS``.
        """
        evidenced = self._evidenced_ids(announced)
        deduplicated = None if evidenced is None else _best_evidence(evidenced)
        frames = [frame for frame in (deduplicated, self._orphaned_ids(evidenced)) if frame is not None]
        yield from self._missing_gaps(union_all(frames) if frames else None)
        yield from self._present_gaps()
        yield from self._changed_gaps()

    @cached_property
    def reread_ids(self) -> list[changed_rows.RereadIds]:
        """Closed IDs that this run read again."""
        return changed_rows.find_reread_ids(self.tables, self.comparable)

    def count_reread_ids(self, fact: Row) -> int:
        """Return the number of closed IDs that this run read again in the stream and table of ``fact``."""
        pair = fact["stream"], fact["table_name"]
        return sum(ids.ids for ids in self.reread_ids if (ids.stream.name, ids.table.name) == pair)

    @cached_property
    def windows(self) -> dict[str, StreamWindow]:
        """By stream, the windows of all streams for which this run computed a bound."""
        windows = {}
        for row in self.positions:
            stream = self.tables.catalogue.stream(row["stream"])
            if row["safe_bound"] is not None and row["rule"] != BoundRule.NOT_COPIED.value:
                previous = self.tables.previous_bound(stream)
                last = row["sequence_last_value"] - (0 if row["sequence_is_called"] else 1)
                bound = stream.direction * row["safe_bound"]
                accepted = None if previous is None else stream.direction * previous
                is_provisional = row["rule"] == BoundRule.PROVISIONAL
                windows[stream.name] = StreamWindow(
                    accepted, bound, max(last, bound), self._is_accepted_provisional(stream), is_provisional
                )
        return windows

    def _is_accepted_provisional(self, stream: Stream) -> bool:
        rows = (row for row in self.positions if row["stream"] == stream.name)
        return any(row["previous_rule"] == BoundRule.PROVISIONAL for row in rows)

    def _searched_windows(self) -> dict[str, StreamWindow]:
        """Return the windows of append-only streams. Windows without IDs are left out."""
        contiguities = {stream.name: stream.contiguity for stream in self.tables.catalogue.streams}
        return {
            name: window
            for name, window in self.windows.items()
            if contiguities[name] is Contiguity.APPEND_ONLY and _start(window) < window.last
        }

    def _evidenced_ids(self, announced: DataFrame | None) -> DataFrame | None:
        """Return the IDs of rows that existed and are missing. Columns: ``EVIDENCE_COLUMNS`` and ``EVENT_COLUMN``."""
        frames = [
            evidence.find_vanished_ids(self.tables, self.previous_read_at, announced),
            evidence.find_regressed_keys(self.tables),
        ]
        for name, window in self._searched_windows().items():
            if name in ("events", "backfill") and _start(window) < window.bound:
                stream = self.tables.catalogue.stream(name)
                frames.append(evidence.find_referenced_ids(self.tables, stream, _start(window), window.bound))
        frames_with_ids = [frame for frame in frames if frame is not None]
        # The checkpoint truncates the lineage, because the nested plan is too large for Catalyst.
        return union_all(frames_with_ids).localCheckpoint() if frames_with_ids else None

    def _orphaned_ids(self, evidenced: DataFrame | None) -> DataFrame | None:
        """Return IDs of events of which only the JSON is stored, with the columns ``EVIDENCE_COLUMNS``.

        :param evidenced: the result of :meth:`_evidenced_ids`.
        """
        searched = self._searched_windows()
        events = {name: window for name, window in searched.items() if name in ("events", "backfill")}
        if not any(_start(window) < window.bound for window in events.values()):
            return None
        # Old orphans are possible if there is no previous release, or if that release has more JSON rows than events.
        has_no_old_orphan = (
            self.previous_row_counts is not None and _json_without_event_count(self.previous_row_counts) == 0
        )
        if has_no_old_orphan and not locate_orphaned_json.may_have_new_orphans(self.tables):
            return None
        searched_before = {name: self._searched_before(name) for name in ("events", "backfill")}
        missing = self._missing_ranges(events, evidenced)
        return locate_orphaned_json.locate_orphans(self.tables, missing, evidenced, searched_before)

    def _searched_before(self, name: str) -> float:
        """Return the ID up to which earlier runs searched a stream for gaps; infinity if the ID is unknown."""
        if window := self.windows.get(name):
            return _start(window) if name in self._searched_windows() else window.last
        is_unused = all(row["rule"] == BoundRule.UNUSED.value for row in self.positions if row["stream"] == name)
        return FIRST_ID if is_unused else inf

    def _missing_gaps(self, evidenced: DataFrame | None) -> Iterator[tuple[Stream, StreamGap]]:
        if evidenced is not None:
            for stream, row in self._ranges(evidenced):
                missing = MissingIds(
                    row.first_id,
                    row.last_id,
                    row.table_name,
                    Evidence(row.evidence),
                    Explanation(row.explanation) if row.explanation else None,
                )
                yield from ((stream, gap) for gap in classify.classify_missing(missing, self._window(stream)))
        searched = self._searched_windows()
        if not searched:
            return
        for row in self._missing_ranges(searched, evidenced).toLocalIterator():
            stream = self.tables.catalogue.stream(row.stream)
            missing = MissingIds(row.first_id, row.last_id)
            yield from ((stream, gap) for gap in classify.classify_missing(missing, searched[stream.name]))

    def _missing_ranges(self, searched: Mapping[str, StreamWindow], evidenced: DataFrame | None) -> DataFrame:
        """Return ranges (stream, first_id, last_id) of IDs in the windows that have no row and no evidence of one."""
        spark = self.tables.spark
        ids = self.tables.query(
            [
                select_sql(
                    table,
                    {"stream": f"'{stream.name}'", "id": distance_sql(stream, table)},
                    is_beyond_sql(stream, table, _start(searched[stream.name])),
                )
                for stream, table in self.tables.catalogue.stream_table_pairs()
                if stream.name in searched
            ]
        )
        if evidenced is not None:
            ids = ids.unionAll(evidenced.select("stream", "id"))
        ids.createOrReplaceTempView("ids")
        windows = [(name, _start(window), window.last) for name, window in searched.items()]
        spark.createDataFrame(windows, "stream string, after bigint, until bigint").createOrReplaceTempView("windows")
        return spark.sql(MISSING_RANGES)

    def _present_gaps(self) -> Iterator[tuple[Stream, StreamGap]]:
        """Yield late and duplicate IDs. Only tables with late or duplicate IDs in their counts are searched."""
        facts = {(fact["stream"], fact["table_name"]): fact for fact in self.facts}
        for stream, table in self.tables.catalogue.stream_table_pairs():
            fact = facts.get((stream.name, table.name))
            repeats = table.repeats_ids or not stream.unique_ids
            if fact and (fact["late_ids"] or (fact["duplicate_ids"] and not repeats)):
                for row in self._suspects(stream, table, repeats=repeats).toLocalIterator():
                    present = PresentId(row.id, table.name, row["rows"], row.was_accepted, row.is_second_life)
                    gaps = classify.classify_present(present, self._window(stream), repeats=repeats)
                    yield from ((stream, gap) for gap in gaps)
        for row in self._shared_ids():
            stream = self.tables.catalogue.stream(row.stream)
            present = PresentId(row.id, None, row.tables, was_accepted=True)
            yield from ((stream, gap) for gap in classify.classify_present(present, self._window(stream)))

    def _changed_gaps(self) -> Iterator[tuple[Stream, StreamGap]]:
        changed = changed_rows.find_changed_ids(self.tables, self.reread_ids, self.repaired)
        for stream, row in self._ranges(changed) if changed is not None else ():
            yield stream, StreamGap(row.first_id, row.last_id, GapClass.CHANGED, row.table_name, Evidence(row.evidence))
        added = changed_rows.find_added_ids(self.tables, self.reread_ids, self.repaired)
        for stream, row in self._ranges(added) if added is not None else ():
            flags = self._window(stream).late_flags
            yield stream, StreamGap(row.first_id, row.last_id, GapClass.LATE, row.table_name, flags=flags)

    def _ranges(self, ids: DataFrame) -> Iterator[tuple[Stream, Any]]:
        """Yield the ranges of ``ids`` (``EVIDENCE_COLUMNS``): the stream, and a row of ``EVIDENCE_RANGES``."""
        ids.createOrReplaceTempView("evidenced_ids")
        for row in self.tables.spark.sql(EVIDENCE_RANGES).toLocalIterator():
            yield self.tables.catalogue.stream(row.stream), row

    def _suspects(self, stream: Stream, table: Table, *, repeats: bool) -> DataFrame:
        """Return late IDs and, if not ``repeats``, repeated IDs. Columns: id, rows, was_accepted, is_second_life."""
        spark = self.tables.spark
        has_events = table.primary_key == ("event_id",)
        event_id = (f.col("event_id") if has_events else f.lit(None).cast("string")).alias("event_id")
        rows = spark.table(f"bronze.{table.name}").where(is_of_stream_sql(stream, table))
        distance = f.expr(distance_sql(stream, table)).alias("id")
        ids = rows.select(distance, event_id)
        grouped = ids.groupBy("id").agg(f.count(f.lit(1)).alias("rows"), f.min("event_id").alias("event_id"))
        previous = self.tables.previous_version(table.name)
        accepted_ids = (ids.limit(0) if previous is None else previous.select(distance)).select("id")
        accepted_ids = accepted_ids.distinct().withColumn("was_accepted", f.lit(True))
        accepted = self._window(stream).accepted
        is_new = f.lit(False) if accepted is None else (f.col("id") <= accepted) & f.col("was_accepted").isNull()
        is_repeated = (f.col("rows") > 1) & f.lit(not repeats)
        deleted = spark.table("audit.deletions").where(f.col("table_name") == table.name)
        earlier_events = [deleted.select(f.get_json_object("key", "$.event_id").alias("event_id"))]
        if previous is not None and has_events:
            earlier_events.append(previous.select("event_id"))
        second_lives = union_all(earlier_events).distinct().withColumn("is_second_life", f.lit(True))
        flags = (f.coalesce(name, f.lit(False)).alias(name) for name in ("was_accepted", "is_second_life"))
        return (
            grouped.join(accepted_ids, "id", "left")
            .where(is_new | is_repeated)
            .join(second_lives, "event_id", "left")
            .select("id", "rows", *flags)
        )

    def _shared_ids(self) -> list[Any]:
        """Return new IDs that several tables contain, in streams with unique IDs: rows of stream, id and tables."""
        changed_tables = self.tables.changed_tables()
        changed = {
            stream.name for stream, table in self.tables.catalogue.stream_table_pairs() if table.name in changed_tables
        }
        by_stream: dict[str, list[str]] = {}
        for stream, table in self.tables.catalogue.stream_table_pairs():
            if stream.name in self.windows and stream.name in changed and stream.unique_ids and not table.repeats_ids:
                by_stream.setdefault(stream.name, []).append(
                    select_sql(
                        table,
                        id_columns_sql(stream, table) | {"id": distance_sql(stream, table)},
                        is_beyond_sql(stream, table, _start(self.windows[stream.name])),
                    )
                )
        selects = [select for selects in by_stream.values() if len(selects) > 1 for select in selects]
        if not selects:
            return []
        tables = f.count_distinct("table_name").alias("tables")
        return self.tables.query(selects).groupBy("stream", "id").agg(tables).where("tables > 1").collect()

    def _window(self, stream: Stream) -> StreamWindow:
        if stream.name in self.windows:
            return self.windows[stream.name]
        # Without a new bound, the run closes no IDs, and the previous bound stays.
        bound = self.tables.previous_bound(stream)
        accepted = None if bound is None else stream.direction * bound
        end = accepted or FIRST_ID
        return StreamWindow(accepted, end, end, self._is_accepted_provisional(stream))


def _best_evidence(evidenced: DataFrame) -> DataFrame:
    """Return the columns ``EVIDENCE_COLUMNS`` of ``evidenced``, with each ID once per table."""
    # A row of the previous release is the best evidence. "accepted_row" is also the first name in alphabetical order.
    best = f.min_by(f.struct("evidence", "explanation"), "evidence").alias("best")
    return evidenced.groupBy("stream", "table_name", "id").agg(best).select("stream", "table_name", "id", "best.*")


def _json_without_event_count(rows: Mapping[str, int]) -> int:
    """Return how many more rows ``event_json`` has than ``events``."""
    return rows.get("event_json", 0) - rows.get("events", 0)


def _start(window: StreamWindow) -> int:
    return FIRST_ID if window.accepted is None else window.accepted
