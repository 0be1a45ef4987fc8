"""Write down the gaps of a run, however many they are."""

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
from synapse_lakehouse.streams.checks.acknowledged import ACKNOWLEDGED_FLAG, AcknowledgedIds, flag_acknowledged
from synapse_lakehouse.streams.gaps.classify import FAULT_CLASSES, GapClass, StreamGap, StreamWindow

_AT_ONCE: Final = 100_000
_NAMED: Final = 5


FindWriters = Callable[[Stream, StreamGap], Sequence[str]]
"""Who wrote the rows of a fault, as far as that is known."""


@dataclass
class GapCounts:
    """How many ids were found that nobody has acknowledged. ``windows``: by stream, what the run closed.

    By stream and class; late and duplicate ones by stream and table, too (no table: several of them share the id).
    ``acknowledged``: streams and tables with duplicates that somebody has acknowledged. ``named``: the first faults of
    each stream, table and class. ``rowless``: by stream, ids that its window closed without a row and without an
    explanation.
    """

    windows: Mapping[str, StreamWindow] = field(default_factory=dict)
    by_class: dict[str, Counter[str]] = field(default_factory=dict)
    late: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    duplicate: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    acknowledged: set[tuple[str, str | None]] = field(default_factory=set)
    named: dict[tuple[str, str | None, GapClass], list[tuple[Stream, StreamGap]]] = field(default_factory=dict)
    rowless: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        total = sum(self.by_class.values(), Counter[str]())
        return ", ".join(f"{ids:,} ids {name.replace('_', ' ')}" for name, ids in total.items()) or "none"

    def correct(
        self, positions: Iterable[dict[str, Any]], facts: Iterable[dict[str, Any]], authors: FindWriters
    ) -> None:
        """Enter what was found into rows of ``audit.stream_positions``, and into suspect ones of ``stream_facts``."""
        for row in positions:
            row["gaps"] = sorted(self.by_class.get(row["stream"], {}).items())
            row["shared_ids"] = self.duplicate[row["stream"], None]
            row["faults"] = [
                _words(*one, authors(*one))
                for (name, *_), few in self.named.items()
                if name == row["stream"]
                for one in few
            ]
            window = self.windows.get(row["stream"])
            if window is not None and window.accepted is not None:
                row["closed_ids"] = max(window.bound - window.accepted, 0)
                row["rowless_ids"] = self.rowless[row["stream"]]
        for fact in facts:
            where = fact["stream"], fact["table_name"]
            if fact["late_ids"] is not None:
                fact["late_ids"] = self.late[where]
            if where in self.acknowledged and not self.duplicate[where]:
                fact["duplicate_ids"] = 0

    def add(self, stream: Stream, gap: StreamGap) -> None:
        """Count the ids of a gap."""
        if ACKNOWLEDGED_FLAG in gap.flags:
            if gap.verdict is GapClass.DUPLICATE:
                self.acknowledged.add((stream.name, gap.table))
            return
        ids = gap.last - gap.first + 1
        self.by_class.setdefault(stream.name, Counter())[gap.verdict.value] += ids
        window = self.windows.get(stream.name)
        if gap.verdict in (GapClass.ROLLED_BACK, GapClass.LOST) and window and window.accepted is not None:
            self.rowless[stream.name] += max(min(gap.last, window.bound) - max(gap.first, window.accepted + 1) + 1, 0)
        few = self.named.setdefault((stream.name, gap.table, gap.verdict), []) if gap.verdict in FAULT_CLASSES else []
        if len(few) < _NAMED:
            few.append((stream, gap))
        if gap.verdict is GapClass.LATE:
            self.late[stream.name, gap.table] += ids
        if gap.verdict is GapClass.DUPLICATE:
            self.duplicate[stream.name, gap.table] += ids


def record_gaps(
    catalog: Catalog,
    run: Run,
    found: Iterable[tuple[Stream, StreamGap]],
    acknowledged: AcknowledgedIds,
    windows: Mapping[str, StreamWindow],
) -> GapCounts:
    """Append ``found`` to ``audit.stream_gaps``, of which no more than a batch is held at once.

    :param windows: by stream, what the run closed.
    """
    tally = GapCounts(windows)
    now = datetime.now(UTC)
    left = (
        (stream, part) for stream, gap in found for part in flag_acknowledged(gap, acknowledged.get(stream.name, ()))
    )
    while batch := list(islice(left, _AT_ONCE)):
        for stream, gap in batch:
            tally.add(stream, gap)
        store.append_audit_rows(catalog, "audit.stream_gaps", [_row(stream, gap, now) for stream, gap in batch], run)
    return tally


def _words(stream: Stream, gap: StreamGap, writers: Sequence[str]) -> str:
    """A fault as people are told of it: ``late 5..7 in events (persister1)``."""
    first, last = _ends(stream, gap)
    ids = str(first) if first == last else f"{first}..{last}"
    by = f" ({', '.join(writers)})" if writers else ""
    return f"{gap.verdict} {ids} in {gap.table or 'several tables'}{by}"


def _ends(stream: Stream, gap: StreamGap) -> tuple[int, int]:
    ends = stream.direction * gap.first, stream.direction * gap.last
    return min(ends), max(ends)


def _row(stream: Stream, gap: StreamGap, now: datetime) -> dict[str, Any]:
    first, last = _ends(stream, gap)
    return {
        "stream": stream.name,
        "table_name": gap.table,
        "first_id": first,
        "last_id": last,
        "class": gap.verdict.value,
        "witness": gap.witness.value if gap.witness else None,
        "explanation": gap.explanation.value if gap.explanation else None,
        "flags": list(gap.flags),
        "measured_at": now,
    }
