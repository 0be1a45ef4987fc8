"""Which ids events must have had that are known by their JSON alone: pure.

An event comes after those that it points at: its id lies between those of its neighbours in the graph of its room.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

Span = tuple[float, float]
"""An id lies between these two and is neither."""

ANYWHERE: Final[Span] = (-inf, inf)


@dataclass(frozen=True)
class Edge:
    """``child`` points at ``parent``; their ids, where they have a row."""

    child: str
    parent: str
    child_id: int | None
    parent_id: int | None


def spans(orphans: Collection[str], edges: Collection[Edge]) -> dict[str, Span]:
    """Between which ids each of ``orphans`` was stored, as far as its neighbours tell, and theirs among the orphans."""
    after, before = dict.fromkeys(orphans, -inf), dict.fromkeys(orphans, inf)
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


def taken(missing: Sequence[tuple[int, int]], between: Collection[Span]) -> list[tuple[int, int]]:
    """Ranges of the ids in ``missing`` that were given away however the owners' ids are chosen.

    That is where as many owners have to find room as there are missing ids (Hall's theorem).

    :param missing: first and last id of ranges that are apart, in order.
    :param between: for each owner, between which ids its own lies.
    """
    lasts, sizes = [last for _, last in missing], [last - first + 1 for first, last in missing]
    upto = [0, *accumulate(sizes)]

    def missing_until(id_: float) -> int:
        number = bisect_right(lasts, id_)
        if number == len(missing):
            return upto[number]
        before = missing[number][0] - 1
        return upto[number] + int(max(id_, before)) - before

    places = [(missing_until(after), missing_until(before - 1)) for after, before in between]
    places = sorted((place for place in places if place[0] < place[1]), key=lambda place: place[1])
    full: set[tuple[int, int]] = set()
    for least in {one for one, _ in places}:
        owners = 0
        for begin, end in places:
            owners += begin >= least
            if begin >= least and owners >= end - least:
                full.add((least, end))
    return [
        (max(first, first + begin - upto[number]), min(last, first + end - upto[number] - 1))
        for begin, end in _joined(full)
        for number, (first, last) in enumerate(missing)
        if begin < upto[number + 1] and end > upto[number]
    ]


def _joined(ranges: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
