"""Which ids events must have had that are known by their JSON alone: pure.

An event comes after those that it points at: its id lies between those of its neighbours in the graph of its room.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

IdSpan = tuple[float, float]
"""An id lies between these two and is neither."""

UNBOUNDED: Final[IdSpan] = (-inf, inf)

IdRange = tuple[int, int]


@dataclass(frozen=True)
class EventEdge:
    """``child`` points at ``parent``; their ids, where they have a row."""

    child: str
    parent: str
    child_id: int | None
    parent_id: int | None


@dataclass(frozen=True)
class AttestedId:
    """A witness gives an event an id: its own, or the first of those that were stored with it."""

    event: str
    id: int
    is_own: bool


def compute_id_spans(
    orphans: Collection[str], edges: Collection[EventEdge], names: Collection[AttestedId] = ()
) -> dict[str, IdSpan]:
    """Between which ids each of ``orphans`` was stored, as far as its neighbours tell, and theirs among the orphans.

    :param names: what is known of ids of the orphans.
    """
    after, before = dict.fromkeys(orphans, -inf), dict.fromkeys(orphans, inf)
    for name in names:
        after[name.event] = max(after[name.event], name.id - 1)
        if name.is_own:
            before[name.event] = min(before[name.event], name.id + 1)
    for _ in after:
        was = {**after}, {**before}
        for edge in edges:
            if edge.child in after:
                least = after.get(edge.parent, -inf) + 1 if edge.parent_id is None else edge.parent_id
                after[edge.child] = max(after[edge.child], least)
            if edge.parent in before:
                most = before.get(edge.child, inf) - 1 if edge.child_id is None else edge.child_id
                before[edge.parent] = min(before[edge.parent], most)
        if was == (after, before):
            break
    return {one: (after[one], before[one]) for one in after}


def find_assigned_ranges(missing: Callable[[], Iterable[IdRange]], between: Collection[IdSpan]) -> list[IdRange]:
    """Ranges of the ids in ``missing`` that were given away however the owners' ids are chosen.

    That is where as many owners have to find room as there are missing ids (Hall's theorem).

    :param missing: gives first and last id of ranges that are apart, in order, and again when it is called again: they
        may be too many to be held.
    :param between: for each owner, between which ids its own lies.
    """
    until = _missing_until({end for after, before in between for end in (after, before - 1)}, missing())
    places = [(until[after], until[before - 1]) for after, before in between]
    places = sorted((place for place in places if place[0] < place[1]), key=lambda place: place[1])
    full: set[IdRange] = set()
    for least in {one for one, _ in places}:
        owners = 0
        for begin, end in places:
            owners += begin >= least
            if begin >= least and owners >= end - least:
                full.add((least, end))
    return list(_at(_joined(full), missing())) if full else []


def _missing_until(ends: Collection[float], missing: Iterable[IdRange]) -> dict[float, int]:
    """How many of the ``missing`` ids there are up to each of ``ends``."""
    found: dict[float, int] = {}
    left, total = sorted(ends, reverse=True), 0
    for first, last in missing:
        while left and left[-1] <= last:
            end = left.pop()
            found[end] = total + int(max(end, first - 1)) - (first - 1)
        if not left:
            break
        total += last - first + 1
    return found | dict.fromkeys(left, total)


def _at(places: Sequence[IdRange], missing: Iterable[IdRange]) -> Iterator[IdRange]:
    """Ranges of the ``missing`` ids at ``places``: from the number of one, counted from 0, up to before another."""
    left, total = list(reversed(places)), 0
    for first, last in missing:
        until = total + last - first + 1
        while left and left[-1][0] < until:
            begin, end = left[-1]
            yield max(first, first + begin - total), min(last, first + end - total - 1)
            if end > until:
                break
            left.pop()
        if not left:
            return
        total = until


def _joined(ranges: Collection[IdRange]) -> list[IdRange]:
    found: list[IdRange] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
