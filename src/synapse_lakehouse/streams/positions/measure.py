"""Measure the run's branch of bronze with Spark: keys of every table, positions and bounds of every stream.

All tables are measured in one query each way, whatever their number: a homeserver has many tables and most are small.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import LoadMode, Stream, Table
from synapse_lakehouse.streams.positions.safe_bound import (
    BoundRule,
    SafeBound,
    compute_bound,
    compute_closed_end,
    find_missing_writers,
)
from synapse_lakehouse.streams.sql import GAPLESS_RUNS
from synapse_lakehouse.streams.stream_tables import StreamTables, distance_sql, is_beyond_sql, select_sql


@dataclass(frozen=True)
class PositionMeasurer:
    """What the measures of one run are taken from.

    ``kept``: tables that this run could not copy, so that they hold what they held before. ``measured``: rows of
    ``audit.table_facts`` that were taken of the very same snapshots, by table. ``positions_before``: by stream and
    writer, as the release before has them; ``vanished_before``: by stream, writers that it missed already.
    """

    held: StreamTables
    writers: Mapping[str, frozenset[str]]
    kept: frozenset[str]
    sequences: Mapping[str, tuple[int, bool]]
    measured: Mapping[str, Mapping[str, Any]]
    positions_before: Mapping[str, Mapping[str, int]]
    vanished_before: Mapping[str, Sequence[str]]

    def table_facts(self) -> list[dict[str, Any]]:
        """Rows of ``audit.table_facts``; what was measured of an unchanged table still holds."""
        tables = [table for table in self.held.catalogue.copied_tables() if table.name not in self.measured]
        found = self._counted_keys(tables, f.xxhash64("key"))
        # Fewer hashes than keys: some are there twice, or share their hash.
        alike = [table for table in tables if (row := found.get(table.name)) and row.rows > row.null_keys + row["keys"]]
        found |= self._counted_keys(alike, f.col("key"))
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

    def _counted_keys(self, tables: Sequence[Table], compared: Column) -> dict[str, Row]:
        """By table: rows, null_keys, and how many of the others differ by what is ``compared``."""
        if not tables:
            return {}
        keys = self.held.rows([_keys(table) for table in tables]).groupBy("table_name")
        counts = {
            "rows": f.count(f.lit(1)),
            "null_keys": f.count_if("has_null"),
            "keys": f.count_distinct(f.when(~f.col("has_null"), compared)),
        }
        return {row.table_name: row for row in keys.agg(*(one.alias(name) for name, one in counts.items())).collect()}

    @cached_property
    def positions(self) -> dict[str, dict[str, int]]:
        """By stream, the position that each writer has stored."""
        stored: dict[str, dict[str, int]] = {}
        for row in self.held.spark.table("bronze.stream_positions").collect():
            stored.setdefault(row.stream_name, {})[row.instance_name] = row.stream_id
        return {stream.name: stored.get(stream.stream_positions or "", {}) for stream in self.held.catalogue.streams}

    @property
    def likely_writers(self) -> dict[str, Collection[str]]:
        """By stream, the writers that are configured, or else those that have a position."""
        return {name: self.writers.get(name) or positions for name, positions in self.positions.items()}

    def stream_positions(self, facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows of ``audit.stream_positions``; ``facts`` are all of the run's stream facts, measured tables included."""
        streams = {stream.name: stream for stream in self.held.catalogue.streams}
        positions = self.positions
        of_stream = {name: [fact for fact in facts if fact["stream"] == name] for name in streams}
        bounds = {name: self._bound(stream, positions[name], of_stream[name]) for name, stream in streams.items()}
        closed = {
            name: compute_closed_end(
                bound.minimum,
                self.held.bound(streams[name]),
                positions[name],
                self.positions_before.get(name, {}),
                sign=streams[name].direction,
            )
            for name, bound in bounds.items()
            if bound.minimum is not None and bound.rule is not BoundRule.HELD
        }
        reaching = {name: end for name, end in closed.items() if _reaches_beyond(streams[name], end, of_stream[name])}
        ends = closed | self._gapless_ends(reaching)
        return [
            self._position(stream, positions[name], bounds[name], ends.get(name, bounds[name].minimum), of_stream[name])
            for name, stream in streams.items()
        ]

    def _bound(self, stream: Stream, positions: dict[str, int], facts: Sequence[Mapping[str, Any]]) -> SafeBound:
        if not stream.stream_positions:
            return SafeBound(None, BoundRule.NO_POSITIONS)
        backing = self.held.catalogue.backing_tables(stream.name)
        if any(table.name in self.kept and table.load is not LoadMode.MEASURE for table, _ in backing):
            return SafeBound(self.held.bound(stream), BoundRule.HELD)
        # Once a run has seen positions, who has rows and no position is a writer that was taken out, unless it had one.
        seen = {writer for fact in facts for writer, rows in fact["rows_by_writer"] if rows}
        before, vanished = self.positions_before.get(stream.name, {}), self.vanished_before.get(stream.name, ())
        if before or vanished:
            seen = find_missing_writers(positions, before, vanished)
        _, is_called = self.sequences[stream.sequence]
        return compute_bound(
            positions,
            self.writers.get(stream.name),
            seen,
            sign=stream.direction,
            is_used=is_called,
            before=self.positions_before.get(stream.name),
        )

    def _gapless_ends(self, closed: Mapping[str, int]) -> dict[str, int]:
        """As :func:`positions.gapless_end` for each stream, over ids that need not fit in memory."""
        beyond = [
            _beyond(stream, table, stream.direction * closed[stream.name])
            for stream, table in self.held.catalogue.stream_table_pairs()
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
        bound: SafeBound,
        end: int | None,
        facts: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        last_value, is_called = self.sequences[stream.sequence]
        known = {*self.positions_before.get(stream.name, ()), *self.vanished_before.get(stream.name, ())}
        ids = [fact[side] for fact in facts for side in ("first_id", "last_id") if fact[side] is not None]
        return {
            "stream": stream.name,
            "writers": sorted(positions.items()),
            "missing_writers": list(bound.missing),
            "unknown_writers": list(bound.unknown),
            "vanished_writers": sorted(known & set(bound.missing)),
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
    return select_sql(table, {"table_name": f"'{table.name}'", "has_null": has_null, "key": f"array({key})"})


def _beyond(stream: Stream, table: Table, end: int) -> str:
    """Columns: stream, distance (from ``end``, of ids that are further from zero)."""
    columns = {"stream": f"'{stream.name}'", "distance": f"{distance_sql(stream, table)} - {end}"}
    return select_sql(table, columns, is_beyond_sql(stream, table, end))


def _reaches_beyond(stream: Stream, end: int, facts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a table of the stream has an id beyond ``end``."""
    ids = (fact[side] for fact in facts for side in ("first_id", "last_id") if fact[side] is not None)
    return any(stream.direction * one > stream.direction * end for one in ids)
