"""Measure the positions and the safe bound of every stream on the run's branch with Spark."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from synapse_lakehouse.catalogue import LoadMode, Stream, Table
from synapse_lakehouse.streams.positions.configured_writers import default_writer
from synapse_lakehouse.streams.positions.safe_bound import (
    BoundRule,
    SafeBound,
    compute_bound,
    compute_closed_end,
    find_learned_writers,
    find_missing_writers,
)
from synapse_lakehouse.streams.sql import GAPLESS_RUNS
from synapse_lakehouse.streams.stream_tables import StreamTables, distance_sql, is_beyond_sql, select_sql


@dataclass(frozen=True)
class PositionMeasurer:
    """Measures the positions of one run's streams.

    * ``writers``: configured writers by stream.
    * ``uncopied``: tables that this run could not copy. They have the content of the previous release.
    * ``sequences``: last value and is_called by sequence.
    * ``previous_positions``: positions of the previous release, by stream and writer.
    * ``previously_vanished``: by stream, the writers that the previous release reported as vanished.
    * ``previous_rules``: by stream, the rule of the bound that the previous release accepted, see
      :func:`safe_bound.find_accepted_rule`.
    * ``previous_row_writers``: by stream, the writers of the stream's rows in the previous release.
    """

    tables: StreamTables
    writers: Mapping[str, frozenset[str]]
    uncopied: frozenset[str]
    sequences: Mapping[str, tuple[int, bool]]
    previous_positions: Mapping[str, Mapping[str, int]]
    previously_vanished: Mapping[str, Sequence[str]]
    previous_rules: Mapping[str, str | None]
    previous_row_writers: Mapping[str, Collection[str]]

    @cached_property
    def positions(self) -> dict[str, dict[str, int]]:
        """The stored position by stream and writer."""
        stored: dict[str, dict[str, int]] = {}
        for row in self.tables.spark.table("bronze.stream_positions").collect():
            stored.setdefault(row.stream_name, {})[row.instance_name] = row.stream_id
        return {stream.name: stored.get(stream.stream_positions or "", {}) for stream in self.tables.catalogue.streams}

    @property
    def likely_writers(self) -> dict[str, Collection[str]]:
        """By stream, the configured writers, or else the writers with a position."""
        return {name: self.writers.get(name) or positions for name, positions in self.positions.items()}

    def measure(self, facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return rows of ``audit.stream_positions``.

        :param facts: all stream facts of the run, including those of tables that are counted in the source.
        """
        streams = {stream.name: stream for stream in self.tables.catalogue.streams}
        positions = self.positions
        facts_of = {name: [fact for fact in facts if fact["stream"] == name] for name in streams}
        bounds = {name: self._bound(stream, positions[name], facts_of[name]) for name, stream in streams.items()}
        closed_ends = {
            name: compute_closed_end(
                bound.minimum,
                self.tables.previous_bound(streams[name]),
                positions[name],
                self.previous_positions.get(name, {}),
                sign=streams[name].direction,
            )
            for name, bound in bounds.items()
            if bound.minimum is not None and bound.rule is not BoundRule.NOT_COPIED
        }
        extensible = {
            name: end for name, end in closed_ends.items() if _has_ids_beyond(streams[name], end, facts_of[name])
        }
        ends = closed_ends | self._extend_ends(extensible)
        for name in self._find_unproven(bounds, closed_ends):
            active = bounds[name].unknown if bounds[name].rule is BoundRule.UNKNOWN_WRITER else ()
            bounds[name] = replace(bounds[name], rule=BoundRule.PROVISIONAL, unknown=active)
        return [
            self._row(stream, positions[name], bounds[name], ends.get(name, bounds[name].minimum), facts_of[name])
            for name, stream in streams.items()
        ]

    def _bound(self, stream: Stream, positions: dict[str, int], facts: Sequence[Mapping[str, Any]]) -> SafeBound:
        if not stream.stream_positions:
            return SafeBound(None, BoundRule.NO_POSITIONS)
        backing = self.tables.catalogue.backing_tables(stream.name)
        if any(table.name in self.uncopied and table.load is not LoadMode.MEASURE for table, _ in backing):
            return SafeBound(self.tables.previous_bound(stream), BoundRule.NOT_COPIED)
        writers = {writer for fact in facts for writer, rows in fact["rows_by_writer"] if rows}
        previous, vanished = self.previous_positions.get(stream.name, {}), self.previously_vanished.get(stream.name, ())
        if previous or vanished:
            missing, unnamed = find_missing_writers(positions, previous, vanished), default_writer(positions)
            former_writers = self.previous_row_writers.get(stream.name, writers)
            writers = find_learned_writers(writers, former_writers, missing, unnamed)
        _, is_called = self.sequences[stream.sequence]
        return compute_bound(
            positions,
            self.writers.get(stream.name),
            writers,
            sign=stream.direction,
            is_used=is_called,
            before=self.previous_positions.get(stream.name),
        )

    def _find_unproven(self, bounds: Mapping[str, SafeBound], closed_ends: Mapping[str, int]) -> list[str]:
        """Return the streams with configured writers whose bound is still an earlier, provisional bound.

        The configured writers prove only their position nearest to zero, and the IDs that follow it without a gap.
        """
        minima = {
            name: minimum
            for name, end in closed_ends.items()
            if self.previous_rules.get(name) == BoundRule.PROVISIONAL
            and bounds[name].rule is not BoundRule.PROVISIONAL
            and (minimum := bounds[name].minimum) is not None
            and minimum != end
        }
        proven = self._extend_ends(minima)
        return [name for name in minima if abs(proven[name]) < abs(closed_ends[name])]

    def _extend_ends(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Return the end of each stream, extended like :func:`safe_bound.extend_without_gap`.

        Spark extends the ends, because the IDs may not fit in memory.
        """
        selects = [
            _beyond_sql(stream, table, stream.direction * ends[stream.name])
            for stream, table in self.tables.catalogue.stream_table_pairs()
            if stream.name in ends
        ]
        if not selects:
            return {}
        self.tables.query(selects).createOrReplaceTempView("beyond")
        runs = {row.stream: row.run for row in self.tables.spark.sql(GAPLESS_RUNS).collect()}
        return {
            name: end + self.tables.catalogue.stream(name).direction * runs.get(name, 0) for name, end in ends.items()
        }

    def _row(
        self,
        stream: Stream,
        positions: dict[str, int],
        bound: SafeBound,
        end: int | None,
        facts: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        last_value, is_called = self.sequences[stream.sequence]
        previous_bound = self.tables.previous_bound(stream)
        earlier_writers = {
            *self.previous_positions.get(stream.name, ()),
            *self.previously_vanished.get(stream.name, ()),
        }
        return {
            "stream": stream.name,
            "writers": sorted(positions.items()),
            "missing_writers": list(bound.missing),
            "unknown_writers": list(bound.unknown),
            "vanished_writers": sorted(earlier_writers & set(bound.missing)),
            "linear_minimum": bound.minimum,
            "linear_maximum": end,
            "safe_bound": end,
            "rule": bound.rule.value,
            "previous_bound": previous_bound,
            "previous_rule": None if previous_bound is None else self.previous_rules.get(stream.name),
            "sequence": stream.sequence,
            "sequence_last_value": last_value,
            "sequence_is_called": is_called,
            "largest_id": max(_outermost_ids(facts), key=lambda stream_id: stream.direction * stream_id, default=None),
            "measured_at": datetime.now(UTC),
        }


def _beyond_sql(stream: Stream, table: Table, end: int) -> str:
    """Return a SELECT of the IDs that are further from zero than ``end``: stream, distance (from ``end``)."""
    columns = {"stream": f"'{stream.name}'", "distance": f"{distance_sql(stream, table)} - {end}"}
    return select_sql(table, columns, is_beyond_sql(stream, table, end))


def _has_ids_beyond(stream: Stream, end: int, facts: Sequence[Mapping[str, Any]]) -> bool:
    return any(stream.direction * stream_id > stream.direction * end for stream_id in _outermost_ids(facts))


def _outermost_ids(facts: Sequence[Mapping[str, Any]]) -> list[int]:
    return [fact[name] for fact in facts for name in ("first_id", "last_id") if fact[name] is not None]
