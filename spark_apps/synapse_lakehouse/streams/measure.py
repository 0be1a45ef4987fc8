"""Measure the run's branch of bronze with Spark: keys of every table, ids and positions of every stream.

All tables are measured in one query each way, whatever their number: a homeserver has many tables and most are small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Load, Stream, Table
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.lake.session import iceberg_table
from synapse_lakehouse.run import Run
from synapse_lakehouse.streams.held import Held, distance, id_columns, of_sign, select
from synapse_lakehouse.streams.positions import Bound, Rule, linear_minimum, still_closed
from synapse_lakehouse.streams.queries import GAPLESS_RUNS
from synapse_lakehouse.streams.writers import MASTER

_RECEIVED = "received_ts"
_COUNTS = ("rows", "ids", "null_ids", "rows_in_interval", "late_ids")


@dataclass(frozen=True)
class Measuring:
    """What the measures of one run are taken from.

    ``kept``: tables that this run could not copy, so that they hold what they held before. ``earlier``: releases of
    this interval, each after the one before it. Where a table has no ``received_ts``, the interval's ids are those that
    this run or one of these saw first. ``measured``: rows of ``audit.table_facts`` that were taken of the very same
    snapshots, by table. ``facts_before``: rows of ``audit.stream_facts`` of the release before, by stream and table.
    ``positions_before``: by stream and writer, as the release before has them.
    """

    held: Held
    run: Run
    writers: Mapping[str, frozenset[str]]
    kept: frozenset[str]
    sequences: Mapping[str, tuple[int, bool]]
    earlier: Sequence[tuple[Release | None, Release]]
    measured: Mapping[str, Mapping[str, Any]]
    facts_before: Mapping[tuple[str, str], Mapping[str, Any]]
    positions_before: Mapping[str, Mapping[str, int]]

    def table_facts(self) -> list[dict[str, Any]]:
        """Rows of ``audit.table_facts``; what was measured of an unchanged table still holds."""
        tables = [table for table in self.held.catalogue.copied() if table.name not in self.measured]
        found = {}
        if tables:
            keys = self.held.rows([_keys(table) for table in tables]).groupBy("table_name")
            found = {
                row.table_name: row
                for row in keys.agg(
                    f.count(f.lit(1)).alias("rows"),
                    f.count_if("has_null").alias("null_keys"),
                    f.count_distinct(f.when(~f.col("has_null"), f.col("key"))).alias("keys"),
                ).collect()
            }
        now = datetime.now(UTC)
        names = ("table_name", "rows", "null_keys", "duplicate_keys", "snapshot_id")
        facts = [{name: row[name] for name in names} | {"measured_at": now} for row in self.measured.values()]
        for table in tables:
            row = found.get(table.name)
            rows, nulls, distinct = (row.rows, row.null_keys, row["keys"]) if row else (0, 0, 0)
            facts.append(
                {
                    "table_name": table.name,
                    "rows": rows,
                    "null_keys": nulls,
                    "duplicate_keys": rows - nulls - distinct,
                    "snapshot_id": self.held.snapshots.get(table.name),
                    "measured_at": now,
                }
            )
        return facts

    def stream_facts(self) -> list[dict[str, Any]]:
        """Rows of ``audit.stream_facts`` for the tables that bronze holds; of most unchanged ones they are known."""
        known = [(*pair, self._known_fact(*pair)) for pair in self.held.pairs()]
        found = self._measured_facts([(stream, table) for stream, table, fact in known if fact is None])
        return [
            fact or self._stream_fact(stream, table, found.get((stream.name, table.name), []))
            for stream, table, fact in known
        ]

    def _measured_facts(self, pairs: Sequence[tuple[Stream, Table]]) -> dict[tuple[str, str], list[Any]]:
        found: dict[tuple[str, str], list[Any]] = {}
        if not pairs:
            return found
        ids = self.held.rows([self._ids(stream, table) for stream, table in pairs])
        ids = self._mark_known(ids, self.held.accepted, "accepted")
        is_first_seen = ~f.col("accepted")
        for number, (former, one) in enumerate(self.earlier):
            ids = self._mark_known(ids, former, f"before_{number}")
            ids = self._mark_known(ids, one, f"after_{number}")
            is_known = f.col(f"before_{number}") | f.col("table_name").isin(*self._forgotten(former))
            is_first_seen |= f.col(f"after_{number}") & ~is_known
        is_late = f.col("is_below") & ~f.col("accepted")
        for row in (
            ids.withColumn("is_late", is_late)
            .withColumn("is_recent", f.coalesce("is_received", is_first_seen))
            .groupingSets(
                [["stream", "table_name"], ["stream", "table_name", "writer"]], "stream", "table_name", "writer"
            )
            .agg(
                f.grouping("writer").alias("is_total"),
                f.count(f.lit(1)).alias("rows"),
                f.count_distinct("id").alias("ids"),
                f.count_if(f.col("id").isNull()).alias("null_ids"),
                f.count_if("is_recent").alias("rows_in_interval"),
                f.count_distinct(f.when(f.col("is_late"), f.col("id"))).alias("late_ids"),
                f.min("id").alias("first_id"),
                f.max("id").alias("last_id"),
            )
            .collect()
        ):
            found.setdefault((row.stream, row.table_name), []).append(row)
        return found

    def stream_positions(self, facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows of ``audit.stream_positions``; ``facts`` are all of the run's stream facts, measured tables included."""
        stored: dict[str, dict[str, int]] = {}
        for row in self.held.spark.table("bronze.stream_positions").collect():
            stored.setdefault(row.stream_name, {})[row.instance_name] = row.stream_id
        streams = {stream.name: stream for stream in self.held.catalogue.streams}
        positions = {name: stored.get(stream.stream_positions or "", {}) for name, stream in streams.items()}
        of_stream = {name: [fact for fact in facts if fact["stream"] == name] for name in streams}
        bounds = {name: self._bound(stream, positions[name], of_stream[name]) for name, stream in streams.items()}
        closed = {
            name: still_closed(
                bound.minimum,
                self.held.bound(streams[name]),
                positions[name],
                self.positions_before.get(name, {}),
                sign=streams[name].direction,
            )
            for name, bound in bounds.items()
            if bound.minimum is not None and bound.rule is not Rule.HELD
        }
        reaching = {name: end for name, end in closed.items() if _reaches_beyond(streams[name], end, of_stream[name])}
        ends = closed | self._gapless_ends(reaching)
        return [
            self._position(stream, positions[name], bounds[name], ends.get(name, bounds[name].minimum), of_stream[name])
            for name, stream in streams.items()
        ]

    def _ids(self, stream: Stream, table: Table) -> str:
        """Columns: stream, table_name, writer, id, is_received (in the interval; NULL: not known), is_below."""
        start, end = (int(moment.timestamp() * 1000) for moment in (self.run.start, self.run.end))
        within = f"{_RECEIVED} >= {start} and {_RECEIVED} < {end}" if _knows_when(table) else "cast(null as boolean)"
        bound = self._accepted_bound(stream, table)
        below = "false" if bound is None else f"{distance(stream, table)} <= {stream.direction * bound}"
        writer = f"coalesce({table.writer_column}, '{MASTER}')" if table.writer_column else f"'{MASTER}'"
        asked = {"writer": writer, "is_received": within, "is_below": f"coalesce({below}, false)"}
        return select(table, id_columns(stream, table) | asked, of_sign(stream, table))

    def _mark_known(self, ids: DataFrame, release: Release | None, mark: str) -> DataFrame:
        """``ids`` with a boolean column ``mark``: whether ``release`` has the id in the same table of the stream.

        Maintenance gives up old releases, and with them what a table held then; its ids then count as unknown.
        """
        published = release.tables if release else {}
        pairs = [
            (stream, table) for stream, table in self.held.pairs() if self._remembers(f"bronze.{table.name}", published)
        ]
        unchanged = {
            table.name for _, table in pairs if published[f"bronze.{table.name}"] == self.held.snapshots.get(table.name)
        }
        is_unchanged = f.col("table_name").isin(*unchanged)
        known = [
            select(table, id_columns(stream, table), at=published[f"bronze.{table.name}"])
            for stream, table in pairs
            if table.name not in unchanged
        ]
        if not known:
            return ids.withColumn(mark, is_unchanged)
        there = self.held.rows(known).distinct().withColumn("_known", f.lit(True))
        marked = ids.join(there, ["stream", "table_name", "id"], "left")
        return marked.withColumn(mark, is_unchanged | f.coalesce("_known", f.lit(False))).drop("_known")

    def _forgotten(self, release: Release | None) -> list[str]:
        published = release.tables if release else {}
        names = {table.name for _, table in self.held.pairs() if f"bronze.{table.name}" in published}
        return sorted(name for name in names if not self._remembers(f"bronze.{name}", published))

    def _remembers(self, name: str, published: Mapping[str, int]) -> bool:
        return name in published and iceberg_table(self.held.spark, name).snapshot(published[name]) is not None

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

    def _stream_fact(self, stream: Stream, table: Table, rows: Sequence[Any]) -> dict[str, Any]:
        total = next((row.asDict() for row in rows if row.is_total), dict.fromkeys(_COUNTS, 0))
        return {
            "stream": stream.name,
            "table_name": table.name,
            **{name: total[name] for name in _COUNTS},
            "duplicate_ids": total["rows"] - total["null_ids"] - total["ids"],
            "late_ids": None if self.held.bound(stream) is None else total["late_ids"],
            "first_id": total.get("first_id"),
            "last_id": total.get("last_id"),
            "rows_by_writer": sorted((row.writer, row.rows) for row in rows if not row.is_total),
            "measured_at": datetime.now(UTC),
        }

    def _accepted_bound(self, stream: Stream, table: Table) -> int | None:
        """The bound that no new id may undercut; None for a table that the release before did not have."""
        is_known = self.held.accepted is not None and f"bronze.{table.name}" in self.held.accepted.tables
        return self.held.bound(stream) if is_known else None

    def _bound(self, stream: Stream, positions: dict[str, int], facts: Sequence[Mapping[str, Any]]) -> Bound:
        if not stream.stream_positions:
            return Bound(None, Rule.NO_POSITIONS)
        backing = self.held.catalogue.backing(stream.name)
        if any(table.name in self.kept and table.load is not Load.MEASURE for table, _ in backing):
            return Bound(self.held.bound(stream), Rule.HELD)
        seen = {writer for fact in facts for writer, rows in fact["rows_by_writer"] if rows}
        _, is_called = self.sequences[stream.sequence]
        return linear_minimum(
            positions,
            self.writers.get(stream.name),
            seen,
            sign=stream.direction,
            is_used=is_called,
            accepted=self.held.bound(stream),
        )

    def _gapless_ends(self, closed: Mapping[str, int]) -> dict[str, int]:
        """As :func:`positions.gapless_end` for each stream, over ids that need not fit in memory."""
        beyond = [
            _beyond(stream, table, stream.direction * closed[stream.name])
            for stream, table in self.held.pairs()
            if stream.name in closed
        ]
        if not beyond:
            return {}
        self.held.rows(beyond).createOrReplaceTempView("beyond")
        runs = {row.stream: row.run for row in self.held.spark.sql(GAPLESS_RUNS).collect()}
        return {
            name: end + self.held.catalogue.stream(name).direction * runs.get(name, 0) for name, end in closed.items()
        }

    def _position(
        self,
        stream: Stream,
        positions: dict[str, int],
        bound: Bound,
        end: int | None,
        facts: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        last_value, is_called = self.sequences[stream.sequence]
        ids = [fact[side] for fact in facts for side in ("first_id", "last_id") if fact[side] is not None]
        return {
            "stream": stream.name,
            "writers": sorted(positions.items()),
            "missing_writers": list(bound.missing),
            "unknown_writers": list(bound.unknown),
            "linear_minimum": bound.minimum,
            "linear_maximum": end,
            "safe_bound": end,
            "rule": bound.rule.value,
            "previous_bound": self.held.bound(stream),
            "sequence": stream.sequence,
            "sequence_last_value": last_value,
            "sequence_is_called": is_called,
            "largest_id": max(ids, key=lambda one: stream.direction * one, default=None),
            "measured_at": datetime.now(UTC),
        }


def _keys(table: Table) -> str:
    """Columns: table_name, has_null (where there may be none), key."""
    required = [f"{name} is null" for name in table.primary_key if name not in table.nullable_key]
    key = ", ".join(f"cast({name} as string)" for name in table.primary_key)
    has_null = " or ".join(required) or "false"
    return select(table, {"table_name": f"'{table.name}'", "has_null": has_null, "key": f"array({key})"})


def _beyond(stream: Stream, table: Table, end: int) -> str:
    """Columns: stream, distance (from ``end``, of ids that are further from zero)."""
    ids = distance(stream, table)
    return select(table, {"stream": f"'{stream.name}'", "distance": f"{ids} - {end}"}, f"{ids} > {end}")


def _knows_when(table: Table) -> bool:
    return _RECEIVED in {one.name for one in table.columns}


def _reaches_beyond(stream: Stream, end: int, facts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a table of the stream has an id beyond ``end``."""
    ids = (fact[side] for fact in facts for side in ("first_id", "last_id") if fact[side] is not None)
    return any(stream.direction * one > stream.direction * end for one in ids)
