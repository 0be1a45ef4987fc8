"""State groups of one or more rooms in memory, taken in chunks and rewritten as the compression goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit


@dataclass(frozen=True)
class GroupChunk:
    """Groups of a room to compress next, and every group that their states rest on."""

    groups: StateGroups
    """With codes of keys that are the chunk's own."""
    in_range: BoolArray
    """Which of the groups to compress."""
    last: int
    """Id of the last group of the room in the chunk."""
    where: Int64Array
    """Where the groups are stored."""
    keys: Int32Array
    """The stored code for each code of a key."""


class GroupStore:
    """The groups of some rooms; ``take`` and ``put`` cost what the chunk holds, not what the rooms hold."""

    def __init__(self, groups: StateGroups, present: BoolArray, rooms: Int32Array, copies: StateGroups) -> None:
        """Take groups as ``indexed`` makes them, with a code of the room of each (any for one not ``present``)."""
        self.copies = copies
        self._ids, self._prev, self._present = groups.ids, groups.prev.copy(), present
        self._keys, self._events, self._end = groups.keys, groups.events, len(groups.keys)
        self._from, self._count = groups.starts[:-1].copy(), groups.rows
        self._marked = np.zeros(len(groups), bool)
        self._chunk_key = np.full(groups.key_count, NONE, np.int32)
        self._members = {int(room): np.flatnonzero(present & (rooms == room)) for room in np.unique(rooms[present])}

    @property
    def rooms(self) -> list[int]:
        """Codes of the rooms that have groups, ascending."""
        return list(self._members)

    def members(self, room: int) -> BoolArray:
        """Which of all groups are those of ``room``."""
        return np.isin(np.arange(len(self._ids)), self._members[room])

    def first_after(self, room: int, after: int) -> int | None:
        """Id of the first group of ``room`` whose id is above ``after``."""
        members = self._after(room, after)
        return int(self._ids[members[0]]) if len(members) else None

    def take(self, room: int, after: int | None, limit: int, heads: Sequence[int]) -> GroupChunk | None:
        """The next ``limit`` groups of ``room``, with what they and ``heads`` rest on; None at the room's end.

        What they rest on may lie in other rooms, or in no room. Once a room is begun (``after`` is set) the reference
        compresses those too when their ids are within the chunk, and so does this.
        """
        members = self._after(room, after)[:limit]
        if not len(members):
            return None
        last = int(self._ids[members[-1]])
        heads_at = np.minimum(np.searchsorted(self._ids, heads), len(self._ids) - 1)
        heads_at = heads_at[(self._ids[heads_at] == heads) & self._present[heads_at]]
        where = np.sort(add_chain_groups(np.concatenate([members, heads_at]), self._prev, self._marked))
        ids = self._ids[where]
        in_range = np.isin(where, members)
        if after is not None:
            in_range |= (after < ids) & (ids <= last)
        groups, keys = self._gathered(where)
        return GroupChunk(groups, in_range, last, where, keys)

    def put(self, chunk: GroupChunk, groups: StateGroups) -> None:
        """Store what changed of a chunk's groups."""
        changed = chunk.groups.changed(groups)
        rows = np.repeat(changed, groups.rows)
        counts = groups.rows[changed]
        end = self._end + int(counts.sum())
        if end > len(self._keys):
            self._keys, self._events = np.resize(self._keys, 2 * end), np.resize(self._events, 2 * end)
        self._keys[self._end : end] = chunk.keys[groups.keys[rows]]
        self._events[self._end : end] = groups.events[rows]
        self._from[chunk.where[changed]] = self._end + np.cumsum(counts) - counts
        self._count[chunk.where[changed]] = counts
        self._prev[chunk.where[changed]] = _where(chunk.where, groups.prev[changed])
        self._end = end

    def groups(self) -> StateGroups:
        """All groups as they are stored now, in the codes they came with."""
        everything = np.arange(len(self._ids))
        groups, keys = self._gathered(everything)
        return StateGroups(groups.ids, groups.prev, groups.starts, keys[groups.keys], groups.events)

    def _after(self, room: int, after: int | None) -> Int64Array:
        members = self._members[room]
        return members if after is None else members[np.searchsorted(self._ids[members], after, side="right") :]

    def _gathered(self, where: Int64Array) -> tuple[StateGroups, Int32Array]:
        starts = np.concatenate([[0], np.cumsum(self._count[where])])
        keys, events, codes = _gathered(where, starts, self._from, self._keys, self._events, self._chunk_key)
        prev = self._prev[where]
        prev = np.where(prev == NONE, NONE, np.searchsorted(where, prev))
        return StateGroups(self._ids[where], prev, starts, keys, events), codes


def _where(places: Int64Array, indices: Int64Array) -> NDArray[np.int64]:
    return np.where(indices == NONE, NONE, places[indices])


@cached_njit
def add_chain_groups(chosen: Int64Array, prev: Int64Array, marked: BoolArray) -> Int64Array:
    """The groups ``chosen`` and all they rest on, once each. ``marked`` is false everywhere, before and after."""
    found = np.empty(2 * len(chosen), np.int64)
    count = 0
    for first in chosen:
        node = first
        while node != NONE and not marked[node]:
            if count == len(found):
                longer = np.empty(2 * count, np.int64)
                longer[:count] = found
                found = longer
            found[count], marked[node] = node, True
            count += 1
            node = prev[node]
    marked[found[:count]] = False
    return found[:count].copy()


@cached_njit
def _gathered(
    where: Int64Array,
    starts: Int64Array,
    first: Int64Array,
    keys: Int32Array,
    events: Int32Array,
    chunk_key: Int32Array,
) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Keys and events of the groups ``where``, and which key each new code of one stands for.

    ``chunk_key`` has a place for every key and is ``NONE`` everywhere, before and after.
    """
    new_keys, new_events = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    codes = np.empty(min(starts[-1], len(chunk_key)), np.int32)
    known = 0
    for group in range(len(where)):
        offset = first[where[group]] - starts[group]
        for row in range(starts[group], starts[group + 1]):
            key = keys[row + offset]
            if chunk_key[key] == NONE:
                chunk_key[key], codes[known] = known, key
                known += 1
            new_keys[row], new_events[row] = chunk_key[key], events[row + offset]
    for code in range(known):
        chunk_key[codes[code]] = NONE
    return new_keys, new_events, codes[:known].copy()
