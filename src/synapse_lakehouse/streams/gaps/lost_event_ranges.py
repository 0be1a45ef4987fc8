"""Between which stream IDs lost events were stored, from the graph of their room: pure arithmetic.

A server stores an event before it creates an event of its own that points at it. So the stream ID of a parent is below
that of its child, where this server created the child and the child still has its first stream ID: one that was purged
and fetched again has a negative one, or one that it got as an outlier. Events of other servers arrive in any order, and
keep the ID that they had as outliers. So do the parents of a membership event by which a user of this server joins,
knocks or refuses an invite through another server, which names the parents.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

IdBounds = tuple[int | None, int | None]
"""The least and the greatest ID that is possible; None where nothing bounds it."""


class LocalEdge(NamedTuple):
    """An event of this server with its first stream ID points at an event; their stream IDs, where they have a row."""

    child: str
    parent: str
    child_id: int | None
    parent_id: int | None


def compute_id_ranges(
    lost: Collection[str], edges: Collection[LocalEdge], known: Mapping[str, int]
) -> dict[str, IdBounds]:
    """The range of each of ``lost``; both ends None where what is stored contradicts itself.

    :param known: stream IDs that rows of other tables give to some of them.
    """
    lowest = _bounds(lost, ((one.parent, one.child, one.parent_id) for one in edges), known, 1)
    highest = _bounds(lost, ((one.child, one.parent, one.child_id) for one in edges), known, -1)
    found: dict[str, IdBounds] = {}
    for event in lost:
        low, high = lowest.get(event), highest.get(event)
        is_possible = low is None or high is None or low <= high
        found[event] = (low, high) if is_possible else (None, None)
    return found


def _bounds(
    lost: Collection[str], edges: Iterable[tuple[str, str, int | None]], known: Mapping[str, int], step: int
) -> dict[str, int]:
    """For each of ``lost`` the bound that follows from all that lead to it: one ``step`` beyond the furthest.

    :param edges: from where, to where, and the ID of where it is from, if it has one.
    """
    wanted = set(lost)
    bounds = {event: step * known[event] for event in wanted if event in known}
    following: dict[str, set[str]] = {}
    waiting = dict.fromkeys(wanted, 0)
    for origin, event, origin_id in edges:
        if event not in wanted:
            continue
        if origin_id is not None:
            bounds[event] = max(bounds.get(event, step * origin_id + 1), step * origin_id + 1)
        elif origin in wanted and event not in following.setdefault(origin, set()):
            following[origin].add(event)
            waiting[event] += 1
    # In an order in which all that lead to an event come before it; events in a circle are never reached.
    ready = [event for event, count in waiting.items() if not count]
    while ready:
        origin = ready.pop()
        for event in following.get(origin, ()):
            if origin in bounds:
                bounds[event] = max(bounds.get(event, bounds[origin] + 1), bounds[origin] + 1)
            waiting[event] -= 1
            if not waiting[event]:
                ready.append(event)
    return {event: step * bound for event, bound in bounds.items()}
