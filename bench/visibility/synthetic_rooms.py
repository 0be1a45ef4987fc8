"""Generate the rooms of a large homeserver as numbers: events in stream order, state groups, and members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

Numbers = np.ndarray

CREATE, POWER_LEVELS, JOIN_RULES, VISIBILITY, TOPIC, MEMBER = range(6)
"""Keys of a room's state. MEMBER + n is the membership of member n."""

EVENTS: Final = 10_000_000
ROOMS: Final = 2_000
LOCAL_USERS: Final = 50_000
GIANT_MEMBERS: Final = 100_000

_HOPS: Final = 100
"""Synapse stores a full state group at this chain length."""
_SETTINGS: Final = 10
"""Expected changes of a room's history visibility and join rules."""
_BEGINNING: Final = np.array([CREATE, MEMBER, POWER_LEVELS, JOIN_RULES, VISIBILITY])
_ABANDONED: Final = 10
"""Every tenth room has no local members."""


@dataclass(frozen=True)
class SyntheticServer:
    """Arrays of numbers, by column. -1 means none.

    * ``events`` in stream order: room; key (-1: no state event); turn: number of earlier events with that key; group
      (-1: outlier); replaces: the previous event with that key; sender: a member; about: the previous event of the
      room; previous and merged: the previous events in the room's graph.
    * ``groups`` from ID 1: room; prev: the predecessor; event. ``rows`` of the groups: group, room, key, event.
    """

    rooms: int
    local_users: int
    events: dict[str, Numbers]
    groups: dict[str, Numbers]
    rows: dict[str, Numbers]
    local: list[int]
    """Number of local members of each room. They are the first members."""
    creations: Numbers
    """Creation event of each room."""

    def find_current(self, stop: int) -> dict[str, Numbers]:
        """Return the numbers of events that are current state, forward extremities, or the last events of their rooms.

        :param stop: number of events that are stored.
        """
        room, key = (self.events[name][:stop] for name in ("room", "key"))
        state = np.flatnonzero(key >= 0)
        state = state[np.lexsort((state, key[state], room[state]))]
        is_latest = np.append((np.diff(room[state]) != 0) | (np.diff(key[state]) != 0), True)
        is_extremity = self.events["group"][:stop] >= 0
        for name in ("previous", "merged"):
            before = self.events[name][:stop]
            is_extremity[before[before >= 0]] = False
        last = np.zeros(self.rooms, np.int64)
        last[room] = np.arange(stop)
        return {"state": state[is_latest], "extremity": np.flatnonzero(is_extremity), "last": np.unique(last)}


def generate_server(scale: float, extra_share: float = 0.0, seed: int = 1) -> SyntheticServer:
    """Generate 10M events in 2,000 rooms at ``scale`` 1: one room of 1M events and 100,000 members, and a long tail.

    :param extra_share: additional events, as a share.
    """
    rng = np.random.default_rng(seed)
    total, rooms = EVENTS * scale * (1 + extra_share), max(10, int(ROOMS * scale))
    giant = int(total / 10)
    tail = 1 / (np.arange(rooms - 1) + 3) ** 0.9
    sizes = [giant, *np.maximum(20, tail / tail.sum() * (total - giant)).astype(int).tolist()]
    parts = [_room(rng, size, int(GIANT_MEMBERS * scale) if number == 0 else 0) for number, size in enumerate(sizes)]
    for part in parts[_ABANDONED - 1 :: _ABANDONED]:
        part.local = 0
    return _merge_rooms(parts, max(20, int(LOCAL_USERS * scale)))


def describe(server: SyntheticServer) -> dict[str, int]:
    """Return counts of the generated server."""
    sizes = np.bincount(server.events["room"])
    members = np.bincount(server.events["room"][(server.events["key"] >= MEMBER) & (server.events["turn"] == 0)])
    predecessors = server.groups["prev"]
    return {
        "rooms": server.rooms,
        "rooms without local members": server.local.count(0),
        "local users": server.local_users,
        "events of the largest room": int(sizes.max()),
        "members of the largest room": int(members.max()),
        "events of the median room": int(np.median(sizes)),
        "full state groups": int((predecessors < 0).sum()),
        "state groups with several deltas": int(
            (np.bincount(server.groups["prev"][server.groups["prev"] > 0]) > 1).sum()
        ),
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
    previous: Numbers
    merged: Numbers


def _room(rng: np.random.Generator, size: int, crowd: int) -> _Room:
    """Generate a room.

    :param crowd: number of members of a federated room that was joined late; its first state consists of outliers.
    """
    if crowd:
        members, changes, local = crowd, size // 50, crowd // 10
    else:
        members = int(min(size**0.6, 0.08 * size)) + 1
        changes = max(len(_BEGINNING) + members, size // 20)
        local = members // 2 + 1
    members_in_state = int(crowd * 0.95)
    key, joined = _changes(rng, changes, members, members_in_state)
    # The outliers of the room's first state come first, then messages with state events between them.
    size = max(size, members_in_state + changes)
    positions = np.sort(rng.choice(np.arange(members_in_state + 5, size), changes - 5, replace=False))
    positions = np.concatenate([members_in_state + np.arange(5), positions])
    keys = np.full(size, -1)
    keys[:members_in_state] = MEMBER + 1 + np.arange(members_in_state)
    keys[positions] = key
    change = np.searchsorted(positions, np.arange(size), "right") - 1
    turn, replaces = _turns(keys)
    sender = (rng.random(size) * joined[np.maximum(change, 0)]).astype(int)
    sender = np.where(keys >= MEMBER, keys - MEMBER, sender)
    prev, merges = _forks(rng, key)
    begin, end = rng.random() * 0.8, 1.0
    if not crowd and rng.random() > 0.4:
        end = begin + rng.random() * (1 - begin)
    at = np.sort(begin + rng.random(size) * (end - begin))
    return _Room(
        at, keys, turn, change, replaces, sender, prev, positions,
        _rows(key, positions, prev, merges, members_in_state), local, *_previous(size, positions, prev, merges),
    )  # fmt: skip


def _changes(rng: np.random.Generator, changes: int, members: int, members_in_state: int) -> tuple[Numbers, Numbers]:
    """Return the keys of all state events, and the number of members after each state event."""
    new = max(0, members - members_in_state - 1)
    rest = changes - len(_BEGINNING)
    joins = np.zeros(rest, bool)
    joins[rng.choice(rest, min(new, rest), replace=False)] = True
    joined = 1 + members_in_state + np.cumsum(joins)
    key = MEMBER + np.where(joins, joined - 1, (rng.random(rest) * joined).astype(int))
    key[~joins & (rng.random(rest) < 0.02)] = TOPIC
    # Settings change a few times in rooms of any size.
    changeable = np.flatnonzero(~joins)
    settings = changeable[rng.random(len(changeable)) < _SETTINGS / max(len(changeable), 1)]
    key[settings] = rng.choice([VISIBILITY, JOIN_RULES], len(settings))
    return np.concatenate([_BEGINNING, key]), np.concatenate([np.full(5, 1 + members_in_state), joined])


def _turns(keys: Numbers) -> tuple[Numbers, Numbers]:
    """Return, for each event, the number of earlier events with its key, and the last of these events."""
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
    """Return each group's predecessor (-1: stored in full), and the groups that merge two forward extremities."""
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


def _previous(size: int, positions: Numbers, prev: Numbers, merges: Numbers) -> tuple[Numbers, Numbers]:
    """Return the previous events of each event of a room: the last event of a branch, and of a merged branch."""
    previous, merged = np.arange(size) - 1, np.full(size, -1)
    previous[: positions[0] + 1] = -1
    forks = np.flatnonzero(prev == np.arange(len(prev)) - 2)
    previous[positions[forks]] = positions[forks - 1] - 1
    merged[positions[merges]] = positions[np.flatnonzero(merges) - 1] - 1
    return previous, merged


def _rows(
    key: Numbers, positions: Numbers, prev: Numbers, merges: Numbers, members_in_state: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Return group, key and event of the rows that Synapse stores."""
    state = np.full(key.max(initial=MEMBER + members_in_state) + 1, -1)
    state[MEMBER + 1 : MEMBER + 1 + members_in_state] = np.arange(members_in_state)
    batches = []
    for first in range(0, len(key), _HOPS):
        state[key[first]] = positions[first]
        keys_set = np.flatnonzero(state >= 0)
        batches.append((np.full(len(keys_set), first), keys_set, state[keys_set]))
        numbers = np.arange(first + 1, min(first + _HOPS, len(key)))
        merging = numbers[merges[numbers]]
        group = np.concatenate([numbers, merging])
        change = np.concatenate([numbers, merging - 2])
        batches.append((group, key[change], positions[change]))
        state[key[numbers]] = positions[numbers]
    group, keys, events = map(np.concatenate, zip(*batches, strict=True))
    return group, keys, events


def _merge_rooms(parts: list[_Room], local_users: int) -> SyntheticServer:
    sizes, changes = [len(part.key) for part in parts], [len(part.prev) for part in parts]
    room = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
    order = np.argsort(np.concatenate([part.at for part in parts]), kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    offset, first_group = np.cumsum([0, *sizes[:-1]]), np.cumsum([0, *changes[:-1]])
    # Groups are numbered in the order of their events.
    of_group = np.concatenate([part.event_of_group + at for part, at in zip(parts, offset, strict=True)])
    by_event = np.argsort(number[of_group], kind="stable")
    group_id = np.empty(len(by_event), np.int64)
    group_id[by_event] = np.arange(1, len(by_event) + 1)

    before = np.append(-1, number[:-1])
    before[offset] = -1
    columns = {
        "room": room,
        "key": np.concatenate([part.key for part in parts]),
        "turn": np.concatenate([part.turn for part in parts]),
        "group": _references(parts, "group", first_group, group_id),
        "replaces": _references(parts, "replaces", offset, number),
        "sender": np.concatenate([part.sender for part in parts]),
        "about": before,
        "previous": _references(parts, "previous", offset, number),
        "merged": _references(parts, "merged", offset, number),
    }
    rows = [part.rows for part in parts]
    state = {
        "group": np.concatenate([group_id[group + at] for (group, _, _), at in zip(rows, first_group, strict=True)]),
        "key": np.concatenate([key for _, key, _ in rows]),
        "event": np.concatenate([number[event + at] for (_, _, event), at in zip(rows, offset, strict=True)]),
        "room": np.repeat(np.arange(len(parts), dtype=np.int32), [len(group) for group, _, _ in rows]),
    }
    groups = {
        "room": np.repeat(np.arange(len(parts), dtype=np.int32), changes)[by_event],
        "prev": _references(parts, "prev", first_group, group_id)[by_event],
        "event": number[of_group][by_event],
    }
    return SyntheticServer(
        len(parts),
        local_users,
        {name: column[order] for name, column in columns.items()},
        groups,
        state,
        [part.local for part in parts],
        number[offset + np.array([part.event_of_group[0] for part in parts])],
    )


def _references(parts: list[_Room], name: str, at: Numbers, ids: Numbers) -> Numbers:
    """Return the references ``name`` of all rooms as IDs. -1 means none.

    :param at: index in ``ids`` of the first row of each room.
    """
    references = [
        np.where(getattr(part, name) < 0, -1, ids[np.maximum(getattr(part, name), 0) + begin])
        for part, begin in zip(parts, at, strict=True)
    ]
    return np.concatenate(references)
