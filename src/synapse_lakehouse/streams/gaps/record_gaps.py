"""Append a run's gaps to ``audit.stream_gaps`` in batches, and count their IDs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Stream
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.streams.checks.operator_acknowledgements import (
    ACKNOWLEDGED_FLAG,
    AcknowledgedIds,
    flag_acknowledged,
)
from synapse_lakehouse.streams.gaps.classify import (
    FAULT_CLASSES,
    PROVISIONAL_FLAG,
    GapClass,
    StreamGap,
    StreamWindow,
)

_BATCH_ROWS: Final = 100_000
_LISTED_FAULTS: Final = 5


FindWriters = Callable[[Stream, StreamGap], Sequence[str]]
"""Function that returns the known writers of a fault's rows."""


@dataclass
class GapCounts:
    """The IDs that :func:`record_gaps` counted. Acknowledged IDs are not counted.

    * ``windows``: by stream, the window that the run searched.
    * ``by_class``: number of IDs by stream and class, without the IDs in ``provisional``.
    * ``provisional``: number of IDs by stream and class, only of faults that depend on a provisional bound.
    * ``late``, ``duplicate``: number of IDs by stream and table. The table is None if several tables share the ID.
      ``late`` has no IDs of ``provisional``.
    * ``acknowledged``: streams and tables with acknowledged duplicates.
    * ``faults``: up to five faults for each stream, table, class, and whether they depend on a provisional bound.
    * ``rowless``: by stream, number of lost or rolled back IDs between the previous safe bound and the new one.
    """

    windows: Mapping[str, StreamWindow] = field(default_factory=dict)
    by_class: dict[str, Counter[str]] = field(default_factory=dict)
    provisional: dict[str, Counter[str]] = field(default_factory=dict)
    late: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    duplicate: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    acknowledged: set[tuple[str, str | None]] = field(default_factory=set)
    faults: dict[tuple[str, str | None, GapClass, bool], list[tuple[Stream, StreamGap]]] = field(default_factory=dict)
    rowless: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        total = sum([*self.by_class.values(), *self.provisional.values()], Counter[str]())
        return ", ".join(f"{ids:,} IDs {name.replace('_', ' ')}" for name, ids in total.items()) or "none"

    def position_columns(self, stream: str, find_writers: FindWriters) -> dict[str, Any]:
        """Return the columns of ``audit.stream_positions`` about gaps: numbers of IDs, and a list of the faults."""
        columns = {
            "gaps": sorted(self.by_class.get(stream, {}).items()),
            "provisional_gaps": sorted(self.provisional.get(stream, {}).items()),
            "shared_ids": self.duplicate[stream, None],
            "faults": [
                _describe(*fault, find_writers(*fault))
                for (name, *_), faults in self.faults.items()
                if name == stream
                for fault in faults
            ],
        }
        window = self.windows.get(stream)
        if window is not None and window.accepted is not None:
            columns |= {"closed_ids": max(window.bound - window.accepted, 0), "rowless_ids": self.rowless[stream]}
        return columns

    def correct_fact(self, fact: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row ``fact`` of ``audit.stream_facts`` without late and duplicate IDs that block no release."""
        corrected, pair = dict(fact), (fact["stream"], fact["table_name"])
        if fact["late_ids"] is not None:
            corrected["late_ids"] = self.late[pair]
        if pair in self.acknowledged and not self.duplicate[pair]:
            corrected["duplicate_ids"] = 0
        return corrected

    def add(self, stream: Stream, gap: StreamGap) -> None:
        """Count the IDs of a gap."""
        if ACKNOWLEDGED_FLAG in gap.flags:
            if gap.gap_class is GapClass.DUPLICATE:
                self.acknowledged.add((stream.name, gap.table))
            return
        ids, is_provisional = gap.last - gap.first + 1, PROVISIONAL_FLAG in gap.flags
        by_class = self.provisional if is_provisional else self.by_class
        by_class.setdefault(stream.name, Counter())[gap.gap_class.value] += ids
        window = self.windows.get(stream.name)
        if gap.gap_class in (GapClass.ROLLED_BACK, GapClass.LOST) and window and window.accepted is not None:
            self.rowless[stream.name] += max(min(gap.last, window.bound) - max(gap.first, window.accepted + 1) + 1, 0)
        if gap.gap_class in FAULT_CLASSES:
            faults = self.faults.setdefault((stream.name, gap.table, gap.gap_class, is_provisional), [])
            if len(faults) < _LISTED_FAULTS:
                faults.append((stream, gap))
        if gap.gap_class is GapClass.LATE and not is_provisional:
            self.late[stream.name, gap.table] += ids
        if gap.gap_class is GapClass.DUPLICATE:
            self.duplicate[stream.name, gap.table] += ids


def record_gaps(
    catalog: Catalog,
    run: Run,
    gaps: Iterable[tuple[Stream, StreamGap]],
    acknowledged: AcknowledgedIds,
    windows: Mapping[str, StreamWindow],
) -> GapCounts:
    """Append ``gaps`` to ``audit.stream_gaps`` and return their counts. At most one batch is in memory.

    :param windows: by stream, the window that the run searched.
    """
    counts = GapCounts(windows)
    now = datetime.now(UTC)
    parts = (
        (stream, part) for stream, gap in gaps for part in flag_acknowledged(gap, acknowledged.get(stream.name, ()))
    )
    while batch := list(islice(parts, _BATCH_ROWS)):
        for stream, gap in batch:
            counts.add(stream, gap)
        store.append_audit_rows(catalog, "audit.stream_gaps", [_row(stream, gap, now) for stream, gap in batch], run)
    return counts


def add_recorded_ids(catalog: Catalog, acknowledged: AcknowledgedIds) -> AcknowledgedIds:
    """Return ``acknowledged``, extended by the ranges that ``audit.stream_gaps`` records as acknowledged.

    A lake without a release may have such rows from an earlier format of the lake.
    """
    ranges = {stream: list(id_ranges) for stream, id_ranges in acknowledged.items()}
    for batch in catalog.load_table("audit.stream_gaps").scan().to_arrow_batch_reader():
        for row in batch.to_pylist():
            if ACKNOWLEDGED_FLAG in row["flags"]:
                first, last = sorted((abs(row["first_id"]), abs(row["last_id"])))
                ranges.setdefault(row["stream"], []).append((first, last))
    return ranges


def _describe(stream: Stream, gap: StreamGap, writers: Sequence[str]) -> str:
    """Describe a fault, such as ``late 5..7 in events (persister1)`` or ``provisional late 5 in events``."""
    first, last = _signed_ends(stream, gap)
    ids = str(first) if first == last else f"{first}..{last}"
    by = f" ({', '.join(writers)})" if writers else ""
    provisional = "provisional " if PROVISIONAL_FLAG in gap.flags else ""
    return f"{provisional}{gap.gap_class} {ids} in {gap.table or 'several tables'}{by}"


def _signed_ends(stream: Stream, gap: StreamGap) -> tuple[int, int]:
    ends = stream.direction * gap.first, stream.direction * gap.last
    return min(ends), max(ends)


def _row(stream: Stream, gap: StreamGap, now: datetime) -> dict[str, Any]:
    first, last = _signed_ends(stream, gap)
    return {
        "stream": stream.name,
        "table_name": gap.table,
        "first_id": first,
        "last_id": last,
        "class": gap.gap_class.value,
        "evidence": gap.evidence.value if gap.evidence else None,
        "explanation": gap.explanation.value if gap.explanation else None,
        "flags": list(gap.flags),
        "measured_at": now,
    }
