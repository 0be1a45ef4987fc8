"""Which ids of a run's streams are missing, late or repeated: found with Spark, decided by ``gaps``.

Only the window that the run closed is searched for gaps, and only tables that it changed for rows that are gone. What
comes to the driver are ranges, one after the other.
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
from synapse_lakehouse.streams.gaps import classify, evidence, orphaned_json
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
    """What the gaps of one run are found in.

    ``positions`` and ``facts`` are the run's rows of ``audit.stream_positions`` and ``audit.stream_facts``; ``rows``
    counts the rows of tables, ``rows_before`` those of the release before, where there is one; ``since`` says, in
    milliseconds since the epoch, when the source was read for that release; ``read_alike`` names the tables that this
    run read with its statements, ``mended`` by table the ranges of keys in which it was found to be wrong.
    """

    held: StreamTables
    positions: Sequence[Row]
    facts: Sequence[Row]
    rows: Mapping[str, int]
    rows_before: Mapping[str, int] | None
    since: int | None
    read_alike: frozenset[str]
    mended: Mapping[str, Sequence[str]]

    def find_gaps(self, announced: Sequence[Row] = ()) -> Iterator[tuple[Stream, StreamGap]]:
        """All gaps and faults, by stream.

        :param announced: rows that a writer announced and that are not there, with the columns ``witnesses.ANNOUNCED``.
        """
        witnessed = self._witnessed(announced)
        told = None if witnessed is None else _told_once(witnessed)
        frames = [one for one in (told, self._orphaned(witnessed)) if one is not None]
        yield from self._missing(union_all(frames) if frames else None)
        yield from self._present()
        yield from self._changed()

    @cached_property
    def reread_ids(self) -> list[changed_rows.RereadIds]:
        """Closed ids that this run read again."""
        return changed_rows.find_reread_ids(self.held, self.read_alike)

    def record_reread_ids(self, facts: Sequence[dict[str, Any]]) -> None:
        """Enter into rows of ``audit.stream_facts`` how many closed ids were read again."""
        ids = {(one.stream.name, one.table.name): one.ids for one in self.reread_ids}
        for fact in facts:
            fact["reread_ids"] = ids.get((fact["stream"], fact["table_name"]), 0)

    @cached_property
    def windows(self) -> dict[str, StreamWindow]:
        """By stream, where it has a bound that this run found, the window that is closed now."""
        found = {}
        for row in self.positions:
            stream = self.held.catalogue.stream(row["stream"])
            if row["safe_bound"] is not None and row["rule"] != BoundRule.HELD.value:
                accepted = self.held.bound(stream)
                last = row["sequence_last_value"] - (0 if row["sequence_is_called"] else 1)
                bound = stream.direction * row["safe_bound"]
                found[stream.name] = StreamWindow(
                    None if accepted is None else stream.direction * accepted, bound, max(last, bound)
                )
        return found

    def _searched(self) -> dict[str, StreamWindow]:
        """Windows of the streams in which a missing id means something, where there is one to search."""
        kinds = {stream.name: stream.contiguity for stream in self.held.catalogue.streams}
        return {
            name: window
            for name, window in self.windows.items()
            if kinds[name] is Contiguity.APPEND_ONLY and _after(window) < window.last
        }

    def _witnessed(self, announced: Sequence[Row]) -> DataFrame | None:
        """Ids that had a row and have none, in ``witnesses.COLUMNS``, ``EVENT``."""
        found = [evidence.find_vanished_ids(self.held, self.since, announced), evidence.find_regressed_keys(self.held)]
        for name, window in self._searched().items():
            if name in ("events", "backfill") and _after(window) < window.bound:
                found.append(
                    evidence.find_referenced_ids(
                        self.held, self.held.catalogue.stream(name), _after(window), window.bound
                    )
                )
        frames = [one for one in found if one is not None]
        # Cut off from what it is made of: Spark cannot plan so many queries with names of their own in each other.
        return union_all(frames).localCheckpoint() if frames else None

    def _orphaned(self, witnessed: DataFrame | None) -> DataFrame | None:
        """Other ids of events that are missed because their JSON is there without them, in ``witnesses.COLUMNS``."""
        searched = self._searched()
        events = {name: window for name, window in searched.items() if name in ("events", "backfill")}
        if not any(_after(window) < window.bound for window in events.values()):
            return None
        # Without a release before, and where its events had other rows than their JSON, there may be some of old.
        is_whole = self.rows_before is not None and _surplus(self.rows_before) == 0
        if is_whole and not orphaned_json.may_have_new_orphans(self.held):
            return None
        before = {name: self._closed_before(name) for name in ("events", "backfill")}
        return orphaned_json.locate_orphans(self.held, self._ranges(events, witnessed), witnessed, before)

    def _closed_before(self, name: str) -> float:
        """Up to where earlier runs searched a stream for gaps; without an end where that is not known."""
        if window := self.windows.get(name):
            return _after(window) if name in self._searched() else window.last
        is_unused = all(row["rule"] == BoundRule.UNUSED.value for row in self.positions if row["stream"] == name)
        return FIRST_ID if is_unused else inf

    def _missing(self, witnessed: DataFrame | None) -> Iterator[tuple[Stream, StreamGap]]:
        if witnessed is not None:
            for stream, row in self._islands(witnessed):
                missing = MissingIds(
                    row.first_id,
                    row.last_id,
                    row.table_name,
                    Evidence(row.witness),
                    Explanation(row.explanation) if row.explanation else None,
                )
                yield from ((stream, gap) for gap in classify.classify_missing(missing, self._window(stream)))
        searched = self._searched()
        if not searched:
            return
        found = self._ranges(searched, witnessed)
        for row in found.toLocalIterator():
            stream = self.held.catalogue.stream(row.stream)
            yield from (
                (stream, gap)
                for gap in classify.classify_missing(MissingIds(row.first_id, row.last_id), searched[stream.name])
            )

    def _ranges(self, searched: Mapping[str, StreamWindow], witnessed: DataFrame | None) -> DataFrame:
        """Columns: stream, first_id, last_id of what is missing in the windows without a witness."""
        spark = self.held.spark
        ids = self.held.rows(
            [
                select_sql(
                    table,
                    {"stream": f"'{stream.name}'", "id": distance_sql(stream, table)},
                    is_beyond_sql(stream, table, _after(searched[stream.name])),
                )
                for stream, table in self.held.catalogue.stream_table_pairs()
                if stream.name in searched
            ]
        )
        if witnessed is not None:
            ids = ids.unionAll(witnessed.select("stream", "id"))
        ids.createOrReplaceTempView("ids")
        windows = [(name, _after(window), window.last) for name, window in searched.items()]
        spark.createDataFrame(windows, "stream string, after bigint, until bigint").createOrReplaceTempView("windows")
        return spark.sql(MISSING_RANGES)

    def _present(self) -> Iterator[tuple[Stream, StreamGap]]:
        """Late and duplicate ids, looked up where counting says that there are some."""
        counted = {(fact["stream"], fact["table_name"]): fact for fact in self.facts}
        for stream, table in self.held.catalogue.stream_table_pairs():
            fact = counted.get((stream.name, table.name))
            repeats = table.repeats_ids or not stream.unique_ids
            if fact and (fact["late_ids"] or (fact["duplicate_ids"] and not repeats)):
                for row in self._suspects(stream, table, repeats=repeats).toLocalIterator():
                    present = PresentId(row.id, table.name, row["rows"], row.was_accepted, row.is_second_life)
                    found = classify.classify_present(present, self._window(stream), repeats=repeats)
                    yield from ((stream, gap) for gap in found)
        for row in self._shared():
            stream = self.held.catalogue.stream(row.stream)
            present = PresentId(row.id, None, row.tables, was_accepted=True)
            yield from ((stream, gap) for gap in classify.classify_present(present, self._window(stream)))

    def _changed(self) -> Iterator[tuple[Stream, StreamGap]]:
        found = changed_rows.find_changed_ids(self.held, self.reread_ids, self.mended)
        for stream, row in self._islands(found) if found is not None else ():
            yield stream, StreamGap(row.first_id, row.last_id, GapClass.CHANGED, row.table_name, Evidence(row.witness))
        more = changed_rows.find_added_ids(self.held, self.reread_ids, self.mended)
        for stream, row in self._islands(more) if more is not None else ():
            yield stream, StreamGap(row.first_id, row.last_id, GapClass.LATE, row.table_name)

    def _islands(self, ids: DataFrame) -> Iterator[tuple[Stream, Any]]:
        """Streams and rows with first_id and last_id for ``ids``, in ``witnesses.COLUMNS``."""
        ids.createOrReplaceTempView("witnessed")
        for row in self.held.spark.sql(EVIDENCE_RANGES).toLocalIterator():
            yield self.held.catalogue.stream(row.stream), row

    def _suspects(self, stream: Stream, table: Table, *, repeats: bool) -> DataFrame:
        """Columns: id, rows, was_accepted, is_second_life of ids that are new below the bound, or repeated."""
        spark = self.held.spark
        is_event = f.col("event_id") if table.primary_key == ("event_id",) else f.lit(None).cast("string")
        rows = spark.table(f"bronze.{table.name}").where(is_of_stream_sql(stream, table))
        distances = f.expr(distance_sql(stream, table)).alias("id")
        ids = rows.select(distances, is_event.alias("event_id"))
        grouped = ids.groupBy("id").agg(f.count(f.lit(1)).alias("rows"), f.min("event_id").alias("event_id"))
        before = self.held.before(table.name)
        known = (ids.limit(0) if before is None else before.select(distances)).select("id")
        known = known.distinct().withColumn("was_accepted", f.lit(True))
        accepted = self._window(stream).accepted
        is_new = f.lit(False) if accepted is None else (f.col("id") <= accepted) & f.col("was_accepted").isNull()
        is_repeated = (f.col("rows") > 1) & f.lit(not repeats)
        lived = spark.table("audit.deletions").where(f.col("table_name") == table.name)
        lives = [lived.select(f.get_json_object("key", "$.event_id").alias("event_id"))]
        if before is not None and table.primary_key == ("event_id",):
            lives.append(before.select("event_id"))
        return (
            grouped.join(known, "id", "left")
            .where(is_new | is_repeated)
            .join(union_all(lives).distinct().withColumn("is_second_life", f.lit(True)), "event_id", "left")
            .select(
                "id", "rows", *(f.coalesce(one, f.lit(False)).alias(one) for one in ("was_accepted", "is_second_life"))
            )
        )

    def _shared(self) -> list[Any]:
        """Rows of stream, id and number of tables: new ids that several tables have, where one table should."""
        changed = {
            stream.name
            for stream, table in self.held.catalogue.stream_table_pairs()
            if table.name in self.held.changed_names()
        }
        by_stream: dict[str, list[str]] = {}
        for stream, table in self.held.catalogue.stream_table_pairs():
            if stream.name in self.windows and stream.name in changed and stream.unique_ids and not table.repeats_ids:
                by_stream.setdefault(stream.name, []).append(
                    select_sql(
                        table,
                        id_columns_sql(stream, table) | {"id": distance_sql(stream, table)},
                        is_beyond_sql(stream, table, _after(self.windows[stream.name])),
                    )
                )
        several = [one for selects in by_stream.values() if len(selects) > 1 for one in selects]
        if not several:
            return []
        tables = f.count_distinct("table_name").alias("tables")
        return self.held.rows(several).groupBy("stream", "id").agg(tables).where("tables > 1").collect()

    def _window(self, stream: Stream) -> StreamWindow:
        if stream.name in self.windows:
            return self.windows[stream.name]
        # Without a bound of its own the run closes nothing, and what was closed before stays closed.
        bound = self.held.bound(stream)
        accepted = None if bound is None else stream.direction * bound
        return StreamWindow(accepted, accepted or FIRST_ID, accepted or FIRST_ID)


def _told_once(witnessed: DataFrame) -> DataFrame:
    """``witnessed`` in ``witnesses.COLUMNS``, each id once per table."""
    # The row itself is the best witness; "accepted_row" comes before all others by name, too.
    first = f.min_by(f.struct("witness", "explanation"), "witness").alias("told")
    told = witnessed.groupBy("stream", "table_name", "id").agg(first)
    return told.select("stream", "table_name", "id", "told.*")


def _surplus(rows: Mapping[str, int]) -> int:
    """So many more events have JSON than a row."""
    return rows.get("event_json", 0) - rows.get("events", 0)


def _after(window: StreamWindow) -> int:
    return FIRST_ID if window.accepted is None else window.accepted
