"""Rooms of a large homeserver as numbers: events in stream order, their state groups, and who was a member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

Numbers = np.ndarray

CREATE, POWER_LEVELS, JOIN_RULES, VISIBILITY, TOPIC, MEMBER = range(6)
"""Keys of a room's state; those from MEMBER on are its members."""

EVENTS: Final = 10_000_000
ROOMS: Final = 2_000
LOCAL_USERS: Final = 50_000
GIANT_MEMBERS: Final = 100_000

_HOPS: Final = 100
"""Synapse stores a state group whole where its chain would grow longer."""
_SETTINGS: Final = 10
"""How often a room's history visibility and join rules are changed, about."""
_BEGINNING: Final = np.array([CREATE, MEMBER, POWER_LEVELS, JOIN_RULES, VISIBILITY])


@dataclass(frozen=True)
class Server:
    """Columns by name, each one array.

    ``events`` in stream order: room; key, -1 where it is no state; turn, how often that key was set before; group, -1
    for an outlier; replaces, the event that set the key before, or -1; sender, a member; about, the event before it in
    its room, or -1. ``groups`` from 1 on: room; prev, or -1; event. ``rows`` of the groups: group, room, key, event.
    """

    rooms: int
    local_users: int
    events: dict[str, Numbers]
    groups: dict[str, Numbers]
    rows: dict[str, Numbers]
    local: list[int]
    """How many members of each room are of this server: the first ones."""


def server(scale: float, more: float = 0.0, seed: int = 1) -> Server:
    """``scale`` 1: 10M events in 2,000 rooms with a long tail, the largest of 1M events and 100,000 members.

    :param more: share of events that come on top.
    """
    rng = np.random.default_rng(seed)
    total, rooms = EVENTS * scale * (1 + more), max(10, int(ROOMS * scale))
    giant = int(total / 10)
    tail = 1 / (np.arange(rooms - 1) + 3) ** 0.9
    sizes = [giant, *np.maximum(20, tail / tail.sum() * (total - giant)).astype(int).tolist()]
    parts = [_room(rng, size, int(GIANT_MEMBERS * scale) if number == 0 else 0) for number, size in enumerate(sizes)]
    return _together(parts, max(20, int(LOCAL_USERS * scale)))


def described(made: Server) -> dict[str, int]:
    """What was made, in figures."""
    sizes = np.bincount(made.events["room"])
    members = np.bincount(made.events["room"][(made.events["key"] >= MEMBER) & (made.events["turn"] == 0)])
    return {
        "rooms": made.rooms,
        "users of this server": made.local_users,
        "events of the largest room": int(sizes.max()),
        "members of the largest room": int(members.max()),
        "events of the middle room": int(np.median(sizes)),
        "state groups that begin a chain": int((made.groups["prev"] < 0).sum()),
        "state groups that fork off": int((np.bincount(made.groups["prev"][made.groups["prev"] > 0]) > 1).sum()),
    }


@dataclass
class _Room:
    at: Numbers
    key: Numbers
    turn: Numbers
    group: Numbers
    replaces: Numbers
    sender: Numbers
    prev: Numbers
    event_of_group: Numbers
    rows: tuple[Numbers, Numbers, Numbers]
    local: int


def _room(rng: np.random.Generator, size: int, crowd: int) -> _Room:
    """:param crowd: members of a room on other servers that was joined late: its first state comes as outliers."""
    if crowd:
        members, changes, local = crowd, size // 50, crowd // 10
    else:
        members = int(min(size**0.6, 0.08 * size)) + 1
        changes = max(len(_BEGINNING) + members, size // 20)
        local = members // 2 + 1
    known = int(crowd * 0.95)
    key, joined = _changes(rng, changes, members, known)
    # Events: those of a state that came as outliers, then messages with changes between them.
    size = max(size, known + changes)
    place = np.sort(rng.choice(np.arange(known + 5, size), changes - 5, replace=False))
    place = np.concatenate([known + np.arange(5), place])
    keys = np.full(size, -1)
    keys[:known] = MEMBER + 1 + np.arange(known)
    keys[place] = key
    change = np.searchsorted(place, np.arange(size), "right") - 1
    turn, replaces = _turns(keys)
    sender = (rng.random(size) * joined[np.maximum(change, 0)]).astype(int)
    sender = np.where(keys >= MEMBER, keys - MEMBER, sender)
    prev, merges = _forks(rng, key)
    begin, end = rng.random() * 0.8, 1.0
    if not crowd and rng.random() > 0.4:
        end = begin + rng.random() * (1 - begin)
    at = np.sort(begin + rng.random(size) * (end - begin))
    return _Room(at, keys, turn, change, replaces, sender, prev, place, _rows(key, place, prev, merges, known), local)


def _changes(rng: np.random.Generator, changes: int, members: int, known: int) -> tuple[Numbers, Numbers]:
    """Keys of all changes, and how many members there are by each of them."""
    new = max(0, members - known - 1)
    rest = changes - len(_BEGINNING)
    joins = np.zeros(rest, bool)
    joins[rng.choice(rest, min(new, rest), replace=False)] = True
    joined = 1 + known + np.cumsum(joins)
    key = MEMBER + np.where(joins, joined - 1, (rng.random(rest) * joined).astype(int))
    key[~joins & (rng.random(rest) < 0.02)] = TOPIC
    # What a room is like is changed a few times, however large it gets.
    others = np.flatnonzero(~joins)
    settings = others[rng.random(len(others)) < _SETTINGS / max(len(others), 1)]
    key[settings] = rng.choice([VISIBILITY, JOIN_RULES], len(settings))
    return np.concatenate([_BEGINNING, key]), np.concatenate([np.full(5, 1 + known), joined])


def _turns(keys: Numbers) -> tuple[Numbers, Numbers]:
    """How often each event's key was set before, and by which event last."""
    order = np.argsort(keys, kind="stable")
    sorted_ = keys[order]
    begins = np.flatnonzero(np.append(True, sorted_[1:] != sorted_[:-1]))
    since = np.repeat(begins, np.diff(np.append(begins, len(keys))))
    turn, replaces = np.empty_like(keys), np.empty_like(keys)
    turn[order] = np.arange(len(keys)) - since
    before = np.append(-1, order[:-1])
    replaces[order] = np.where(np.arange(len(keys)) == since, -1, before)
    replaces[keys < 0] = -1
    return turn, replaces


def _forks(rng: np.random.Generator, key: Numbers) -> tuple[Numbers, Numbers]:
    """The group that each rests on, -1 for one that is stored whole; and those that join two ends again."""
    number = np.arange(len(key))
    prev = np.where(number % _HOPS == 0, -1, number - 1)
    forks = (rng.random(len(key)) < 0.03) & (number % _HOPS > 2) & (number % _HOPS < _HOPS - 1)
    forks[1:] &= ~forks[:-1].copy()
    forks[1:] &= key[1:] != key[:-1]
    forks[-1] = False
    prev[forks] -= 1
    merges = np.zeros(len(key), bool)
    merges[1:] = forks[:-1]
    merges[2:] &= key[2:] != key[:-2]
    return prev, merges


def _rows(key: Numbers, place: Numbers, prev: Numbers, merges: Numbers, known: int) -> tuple[Numbers, Numbers, Numbers]:
    """Group, key and event of what Synapse stores of the groups."""
    now = np.full(key.max(initial=MEMBER + known) + 1, -1)
    now[MEMBER + 1 : MEMBER + 1 + known] = np.arange(known)
    found = []
    for first in range(0, len(key), _HOPS):
        now[key[first]] = place[first]
        held = np.flatnonzero(now >= 0)
        found.append((np.full(len(held), first), held, now[held]))
        numbers = np.arange(first + 1, min(first + _HOPS, len(key)))
        joining = numbers[merges[numbers]]
        group = np.concatenate([numbers, joining])
        of = np.concatenate([numbers, joining - 2])
        found.append((group, key[of], place[of]))
        now[key[numbers]] = place[numbers]
    group, keys, events = map(np.concatenate, zip(*found, strict=True))
    return group, keys, events


def _together(parts: list[_Room], local_users: int) -> Server:
    sizes, changes = [len(one.key) for one in parts], [len(one.prev) for one in parts]
    room = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
    order = np.argsort(np.concatenate([one.at for one in parts]), kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    offset, first_group = np.cumsum([0, *sizes[:-1]]), np.cumsum([0, *changes[:-1]])
    # Groups are numbered as their events came, so that those of the newest events are the newest.
    of_group = np.concatenate([one.event_of_group + at for one, at in zip(parts, offset, strict=True)])
    by_event = np.argsort(number[of_group], kind="stable")
    group_id = np.empty(len(by_event), np.int64)
    group_id[by_event] = np.arange(1, len(by_event) + 1)

    def numbered(name: str, at: Numbers, ids: Numbers) -> Numbers:
        shifted = [
            np.where(getattr(one, name) < 0, -1, ids[np.maximum(getattr(one, name), 0) + begin])
            for one, begin in zip(parts, at, strict=True)
        ]
        return np.concatenate(shifted)

    before = np.append(-1, number[:-1])
    before[offset] = -1
    columns = {
        "room": room,
        "key": np.concatenate([one.key for one in parts]),
        "turn": np.concatenate([one.turn for one in parts]),
        "group": numbered("group", first_group, group_id),
        "replaces": numbered("replaces", offset, number),
        "sender": np.concatenate([one.sender for one in parts]),
        "about": before,
    }
    rows = [one.rows for one in parts]
    state = {
        "group": np.concatenate([group_id[of + at] for (of, _, _), at in zip(rows, first_group, strict=True)]),
        "key": np.concatenate([key for _, key, _ in rows]),
        "event": np.concatenate([number[event + at] for (_, _, event), at in zip(rows, offset, strict=True)]),
        "room": np.repeat(np.arange(len(parts), dtype=np.int32), [len(of) for of, _, _ in rows]),
    }
    groups = {
        "room": np.repeat(np.arange(len(parts), dtype=np.int32), changes)[by_event],
        "prev": numbered("prev", first_group, group_id)[by_event],
        "event": number[of_group][by_event],
    }
    return Server(
        len(parts),
        local_users,
        {name: column[order] for name, column in columns.items()},
        groups,
        state,
        [one.local for one in parts],
    )
