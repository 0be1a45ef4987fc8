"""Bound the stream IDs of lost events by their room's graph. Pure.

A server stores an event (the parent) before it creates an event that refers to it (the child). So the stream ID of the
parent is lower than that of the child, if this server created the child and the child still has its first stream ID. A
child that was purged and fetched again has another ID.

An event of another server bounds no ID, because it may arrive before its parents. A membership event by which a local
user joins, knocks or refuses an invite through another server bounds no ID either: that server chooses the parents.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

IdBounds = tuple[int | None, int | None]
"""The least and the greatest possible ID. None means that there is no bound on that side."""


class LocalEdge(NamedTuple):
    """An event that this server created (the child), and its parent. The ID of an event without a row is None."""

    child: str
    parent: str
    child_id: int | None
    parent_id: int | None


def compute_id_ranges(
    lost: Collection[str], edges: Collection[LocalEdge], known_ids: Mapping[str, int]
) -> dict[str, IdBounds]:
    """Return the bounds of each lost event's ID. Both are None if the stored data are contradictory.

    :param known_ids: stream IDs that other tables record for lost events.
    """
    lowest = _bounds(lost, ((edge.parent, edge.child, edge.parent_id) for edge in edges), known_ids, 1)
    highest = _bounds(lost, ((edge.child, edge.parent, edge.child_id) for edge in edges), known_ids, -1)
    bounds: dict[str, IdBounds] = {}
    for event in lost:
        low, high = lowest.get(event), highest.get(event)
        is_possible = low is None or high is None or low <= high
        bounds[event] = (low, high) if is_possible else (None, None)
    return bounds


def _bounds(
    lost: Collection[str], edges: Iterable[tuple[str, str, int | None]], known_ids: Mapping[str, int], step: int
) -> dict[str, int]:
    """Return one bound of each lost event's ID: one ``step`` beyond the furthest ID or bound of the event's origins.

    :param edges: origin, event, and the origin's ID or None. Parents are the origins for the least possible ID,
        children for the greatest.
    :param step: 1 for the least possible ID, -1 for the greatest.
    """
    events = set(lost)
    bounds = {event: step * known_ids[event] for event in events if event in known_ids}
    following: dict[str, set[str]] = {}
    open_origins = dict.fromkeys(events, 0)
    for origin, event, origin_id in edges:
        if event not in events:
            continue
        if origin_id is not None:
            bounds[event] = max(bounds.get(event, step * origin_id + 1), step * origin_id + 1)
        elif origin in events and event not in following.setdefault(origin, set()):
            following[origin].add(event)
            open_origins[event] += 1
    # Topological order: an event comes after all of its origins. Events in a cycle are never reached.
    ready = [event for event, count in open_origins.items() if not count]
    while ready:
        origin = ready.pop()
        for event in following.get(origin, ()):
            if origin in bounds:
                bounds[event] = max(bounds.get(event, bounds[origin] + 1), bounds[origin] + 1)
            open_origins[event] -= 1
            if not open_origins[event]:
                ready.append(event)
    return {event: step * bound for event, bound in bounds.items()}
