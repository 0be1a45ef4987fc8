"""Infer the stream IDs of events of which only the JSON is still stored. Pure.

An event is stored after the events that it refers to. So its ID lies between the IDs of its neighbours in the graph.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

IdSpan = tuple[float, float]
"""Two IDs: the IDs between them belong to the span, the two IDs themselves do not."""

IdRange = tuple[int, int]
"""The first and the last ID of a range."""


@dataclass(frozen=True)
class EventEdge:
    """``child`` refers to ``parent`` in its ``prev_events``. An event's ID is None if the event has no row."""

    child: str
    parent: str
    child_id: int | None
    parent_id: int | None


@dataclass(frozen=True)
class AttestedId:
    """An ID that other rows record for an event: the event's own, or the first ID of the same transaction."""

    event: str
    id: int
    is_own: bool


def compute_id_spans(
    orphans: Collection[str], edges: Collection[EventEdge], attested: Collection[AttestedId] = ()
) -> dict[str, IdSpan]:
    """Return the span of the ID of each event in ``orphans``, from the IDs and spans of its neighbours.

    :param attested: IDs that other rows record for the orphans.
    """
    after, before = dict.fromkeys(orphans, -inf), dict.fromkeys(orphans, inf)
    for name in attested:
        after[name.event] = max(after[name.event], name.id - 1)
        if name.is_own:
            before[name.event] = min(before[name.event], name.id + 1)
    for _ in after:
        last_pass = {**after}, {**before}
        for edge in edges:
            if edge.child in after:
                least = after.get(edge.parent, -inf) + 1 if edge.parent_id is None else edge.parent_id
                after[edge.child] = max(after[edge.child], least)
            if edge.parent in before:
                most = before.get(edge.child, inf) - 1 if edge.child_id is None else edge.child_id
                before[edge.parent] = min(before[edge.parent], most)
        if last_pass == (after, before):
            break
    return {event: (after[event], before[event]) for event in after}


def find_assigned_ranges(missing: Callable[[], Iterable[IdRange]], spans: Collection[IdSpan]) -> list[IdRange]:
    """Return ranges of ``missing`` IDs that were certainly assigned to the events with these ``spans``.

    If n consecutive missing IDs are the only possible IDs of n events, they belong to these events (Hall's theorem).

    :param missing: function that returns the missing ranges, ordered and not adjacent. It is called several times,
        because the ranges may not fit in memory.
    :param spans: the span of each event's ID.
    """
    missing_until = _count_missing_until({end for after, before in spans for end in (after, before - 1)}, missing())
    places = [(missing_until[after], missing_until[before - 1]) for after, before in spans]
    places = sorted((place for place in places if place[0] < place[1]), key=lambda place: place[1])
    full: set[IdRange] = set()
    for least in {begin for begin, _ in places}:
        events = 0
        for begin, end in places:
            events += begin >= least
            if begin >= least and events >= end - least:
                full.add((least, end))
    return list(_ids_at(_merged(full), missing())) if full else []


def _count_missing_until(ends: Collection[float], missing: Iterable[IdRange]) -> dict[float, int]:
    """Return the number of ``missing`` IDs up to each of ``ends``."""
    counts: dict[float, int] = {}
    remaining, total = sorted(ends, reverse=True), 0
    for first, last in missing:
        while remaining and remaining[-1] <= last:
            end = remaining.pop()
            counts[end] = total + int(max(end, first - 1)) - (first - 1)
        if not remaining:
            break
        total += last - first + 1
    return counts | dict.fromkeys(remaining, total)


def _ids_at(places: Sequence[IdRange], missing: Iterable[IdRange]) -> Iterator[IdRange]:
    """Yield ranges of the ``missing`` IDs whose indexes, counted from 0, are in the half-open ranges ``places``."""
    remaining, total = list(reversed(places)), 0
    for first, last in missing:
        until = total + last - first + 1
        while remaining and remaining[-1][0] < until:
            begin, end = remaining[-1]
            yield max(first, first + begin - total), min(last, first + end - total - 1)
            if end > until:
                break
            remaining.pop()
        if not remaining:
            return
        total = until


def _merged(ranges: Collection[IdRange]) -> list[IdRange]:
    merged: list[IdRange] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged
