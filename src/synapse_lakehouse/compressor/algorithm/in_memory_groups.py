"""State groups of rooms in memory, read in chunks and rewritten in place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synapse_lakehouse.compressor.algorithm.state_groups import NONE, StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int32Array, Int64Array, cached_njit


@dataclass(frozen=True)
class GroupChunk:
    """The next groups of a room to compress, with their chains."""

    groups: StateGroups
    """The groups of the chunk; their key codes are local to the chunk."""
    in_range: BoolArray
    """Which groups to compress."""
    last: int
    """ID of the last group of the room in the chunk."""
    where: Int64Array
    """Index of each group in the store."""
    keys: Int32Array
    """The store's key code for each local key code."""


class GroupStore:
    """The groups of some rooms. The cost of ``take_chunk`` and ``put_chunk`` grows only with the chunk."""

    def __init__(self, groups: StateGroups, present: BoolArray, rooms: Int32Array, copies: StateGroups) -> None:
        """Create a store of groups from ``index_groups``. ``rooms``: room codes, arbitrary if not ``present``."""
        self.copies = copies
        self._ids, self._prev, self._present = groups.ids, groups.prev.copy(), present
        self._keys, self._events, self._end = groups.keys, groups.events, len(groups.keys)
        self._from, self._count = groups.starts[:-1].copy(), groups.rows
        self._marked = np.zeros(len(groups), bool)
        self._chunk_key = np.full(groups.key_count, NONE, np.int32)
        self._members = {int(room): np.flatnonzero(present & (rooms == room)) for room in np.unique(rooms[present])}

    @property
    def rooms(self) -> list[int]:
        """Ascending codes of the rooms that have groups."""
        return list(self._members)

    def groups_in_room(self, room: int) -> BoolArray:
        """Return which groups are in ``room``."""
        return np.isin(np.arange(len(self._ids)), self._members[room])

    def first_after(self, room: int, after: int) -> int | None:
        """Return the ID of the first group of ``room`` above ``after``."""
        members = self._after(room, after)
        return int(self._ids[members[0]]) if len(members) else None

    def take_chunk(self, room: int, after: int | None, limit: int, heads: Sequence[int]) -> GroupChunk | None:
        """Return the next ``limit`` groups of ``room``, with their chains and the chains of ``heads``; None at the end.

        A chain may lead to other rooms, or to groups without a room. From the second chunk on (``after`` is set), such
        groups are also compressed if their IDs are in the chunk's range. Synapse's compressor does the same.
        """
        members = self._after(room, after)[:limit]
        if not len(members):
            return None
        last = int(self._ids[members[-1]])
        heads_at = np.minimum(np.searchsorted(self._ids, heads), len(self._ids) - 1)
        heads_at = heads_at[(self._ids[heads_at] == heads) & self._present[heads_at]]
        indices = np.sort(add_chain_groups(np.concatenate([members, heads_at]), self._prev, self._marked))
        ids = self._ids[indices]
        in_range = np.isin(indices, members)
        if after is not None:
            in_range |= (after < ids) & (ids <= last)
        groups, keys = self._gather(indices)
        return GroupChunk(groups, in_range, last, indices, keys)

    def put_chunk(self, chunk: GroupChunk, groups: StateGroups) -> None:
        """Store the changed groups of a chunk."""
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
        prev = groups.prev[changed]
        self._prev[chunk.where[changed]] = np.where(prev == NONE, NONE, chunk.where[prev])
        self._end = end

    def groups(self) -> StateGroups:
        """Return all groups as they are stored now, with the original codes."""
        groups, keys = self._gather(np.arange(len(self._ids)))
        return StateGroups(groups.ids, groups.prev, groups.starts, keys[groups.keys], groups.events)

    def _after(self, room: int, after: int | None) -> Int64Array:
        members = self._members[room]
        return members if after is None else members[np.searchsorted(self._ids[members], after, side="right") :]

    def _gather(self, indices: Int64Array) -> tuple[StateGroups, Int32Array]:
        starts = np.concatenate([[0], np.cumsum(self._count[indices])])
        keys, events, codes = _gather_rows(indices, starts, self._from, self._keys, self._events, self._chunk_key)
        prev = self._prev[indices]
        prev = np.where(prev == NONE, NONE, np.searchsorted(indices, prev))
        return StateGroups(self._ids[indices], prev, starts, keys, events), codes


@cached_njit
def add_chain_groups(chosen: Int64Array, prev: Int64Array, marked: BoolArray) -> Int64Array:
    """Return the groups ``chosen`` and all groups of their chains, once each. ``marked``: a buffer, all false."""
    chain = np.empty(2 * len(chosen), np.int64)
    count = 0
    for first in chosen:
        node = first
        while node != NONE and not marked[node]:
            if count == len(chain):
                longer = np.empty(2 * count, np.int64)
                longer[:count] = chain
                chain = longer
            chain[count], marked[node] = node, True
            count += 1
            node = prev[node]
    marked[chain[:count]] = False
    return chain[:count].copy()


@cached_njit
def _gather_rows(
    where: Int64Array,
    starts: Int64Array,
    first: Int64Array,
    keys: Int32Array,
    events: Int32Array,
    chunk_key: Int32Array,
) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Return local keys and events of the groups ``where``, and the store's key code for each local key.

    ``chunk_key``: a buffer with an entry for each key, all ``NONE``.
    """
    new_keys, new_events = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    codes = np.empty(min(starts[-1], len(chunk_key)), np.int32)
    key_count = 0
    for group in range(len(where)):
        offset = first[where[group]] - starts[group]
        for row in range(starts[group], starts[group + 1]):
            key = keys[row + offset]
            if chunk_key[key] == NONE:
                chunk_key[key], codes[key_count] = key_count, key
                key_count += 1
            new_keys[row], new_events[row] = chunk_key[key], events[row + offset]
    for code in range(key_count):
        chunk_key[codes[code]] = NONE
    return new_keys, new_events, codes[:key_count].copy()
