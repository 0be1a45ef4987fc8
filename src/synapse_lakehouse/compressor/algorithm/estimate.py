"""What compressing rooms would come to, before anything is changed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.compressor.algorithm import fewest_rows
from synapse_lakehouse.compressor.algorithm.chain_limit import limit_chains
from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult, RoomProgress, compress_chunks
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.in_memory_groups import GroupStore
from synapse_lakehouse.compressor.algorithm.settings import CompressorSettings, Strategy
from synapse_lakehouse.compressor.algorithm.state_arrays import CodeTexts, encode_tables
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import StateGroups
from synapse_lakehouse.numba_jit import BoolArray, Int64Array

_HEAP_ROW, _INDEX_ROW = 24 + 4 + 8, 8 + 4 + 8
"""Bytes of a row of state_groups_state, and of its entry in the index, beside the texts."""


@dataclass(frozen=True)
class RoomPlan:
    """One room; rows and bytes are those of its groups in ``state_groups_state``, its index included."""

    room_id: str
    groups: int
    groups_to_rewrite: int
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int
    rows_to_delete: int
    rows_to_insert: int
    bytes_needed: int
    """What new rows take until VACUUM has given back the old ones."""
    longest_chain_before: int
    longest_chain_after: int


@dataclass(frozen=True)
class PlannedGroups:
    """Some rooms' groups as they are stored, and as they would be."""

    stored: GroupStore
    names: CodeTexts
    before: StateGroups
    after: StateGroups
    steps: tuple[ChunkResult, ...]
    """What the levels did, chunk by chunk."""
    deduplicated: BoolArray
    """Groups to store without the copies of their rows, whether or not they change otherwise."""

    @property
    def changed(self) -> BoolArray:
        """Which groups are to be stored otherwise."""
        return self.before.changed(self.after) | self.deduplicated

    @property
    def rows_before(self) -> Int64Array:
        """Rows that are stored of each group, copies included."""
        return cast(Int64Array, self.before.rows + self.stored.copies.rows)

    def rooms(self, only: Collection[int] | None = None) -> list[RoomPlan]:
        """What it comes to for each room, by room_id; for those whose codes are given, or all."""
        changed, copies = self.changed, self.stored.copies
        stay = np.where(changed, 0, copies.rows)
        copied = _sizes(self.names, copies)
        rows = self.rows_before, self.after.rows + stay
        sizes = _sizes(self.names, self.before) + copied, _sizes(self.names, self.after) + np.where(changed, 0, copied)
        chains = self.before.chain_nodes(), self.after.chain_nodes()
        rooms = self.names.rooms.to_pylist()
        plans = (
            _room_plan(rooms[room], self.stored.members(room), changed, rows, sizes, chains)
            for room in (self.stored.rooms if only is None else only)
        )
        return sorted(plans, key=lambda one: one.room_id)


def estimate_rooms(
    contents: tuple[pa.Table, pa.Table, pa.Table], settings: CompressorSettings, known: Mapping[str, RoomProgress]
) -> list[RoomPlan]:
    """The plan of each room in the tables, by room_id.

    :param contents: ``state_groups``, ``state_group_edges`` and ``state_groups_state`` of rooms whose chains lead to no
        other ones. Rooms that are linked by their chains are planned together.
    :param known: the progress that was saved, by room_id; only levels have any.
    :raises InvalidStateGroupsError: for groups that cannot be what Synapse stored.
    """
    stored, names = encode_tables(*contents)
    rooms = names.rooms.to_pylist()
    progress = {rooms.index(room): one for room, one in known.items() if room in rooms}
    return _planned(stored, names, settings, progress, stored.rooms, (), (), ()).rooms()


def summarize_stored_room(contents: tuple[pa.Table, pa.Table, pa.Table], room_id: str) -> RoomPlan:
    """A room as it is: the plan that changes nothing.

    :raises InvalidStateGroupsError: for groups that cannot be what Synapse stored.
    """
    stored, names = encode_tables(*contents)
    groups = stored.groups()
    nothing = np.zeros(len(groups), bool)
    return PlannedGroups(stored, names, groups, groups, (), nothing).rooms([names.rooms.to_pylist().index(room_id)])[0]


def estimate_room(
    contents: tuple[pa.Table, pa.Table, pa.Table],
    room_id: str,
    settings: CompressorSettings,
    progress: RoomProgress | None,
    *,
    excluded: Collection[int] = (),
    untouchable: Collection[int] = (),
    begun: Collection[int] = (),
) -> tuple[PlannedGroups, RoomPlan]:
    """What compressing one room would make of it.

    With ``best``, chains that are still too long, as another compressor or a plan that is half done may leave them, are
    cut as Synapse cuts them, even if that takes rows.

    :param contents: its groups in the three tables, and all that they and the heads of its levels rest on.
    :param progress: what was saved of it; only levels have any.
    :param excluded: ids of groups that ``best`` hangs nothing on, and leaves as they are unless it has to cut there.
    :param untouchable: ids of groups that ``best`` leaves as they are in any case.
    :param begun: last group of a chunk that is stored in part; see ``compress_chunks``.
    :raises InvalidStateGroupsError: for groups that cannot be what Synapse stored.
    """
    stored, names = encode_tables(*contents)
    room = names.rooms.to_pylist().index(room_id)
    known = {} if progress is None else {room: progress}
    planned = _planned(stored, names, settings, known, [room], excluded, untouchable, begun)
    if settings.strategy is Strategy.BEST:
        allowed = stored.members(room) & ~np.isin(planned.before.ids, np.fromiter(untouchable, np.int64))
        after = limit_chains(planned.after, allowed, settings.max_chain)
        if (wrong := fingerprint_states(planned.before).differ(fingerprint_states(after))).any():
            raise InvalidStateGroupsError(f"state group {after.ids[wrong.argmax()]} would resolve to another state")
        planned = replace(planned, after=after)
    return planned, planned.rooms([room])[0]


def _planned(
    stored: GroupStore, names: CodeTexts, settings: CompressorSettings, progress: Mapping[int, RoomProgress],
    rooms: Collection[int], excluded: Collection[int], untouchable: Collection[int], begun: Collection[int],
) -> PlannedGroups:  # fmt: skip
    before = stored.groups()
    of_rooms = reduce(np.logical_or, map(stored.members, rooms), np.zeros(len(before), bool))
    deduplicated = of_rooms & (stored.copies.rows > 0) & ~np.isin(before.ids, np.fromiter(untouchable, np.int64))
    if settings.strategy is Strategy.LEVELS:
        levels, size = settings.default_levels, settings.chunk_size
        steps = tuple(compress_chunks(stored, levels, size, progress, rooms=rooms, begun=begun))
        return PlannedGroups(stored, names, before, stored.groups(), steps, deduplicated)
    after = before
    allowed = ~np.isin(before.ids, np.fromiter([*excluded, *untouchable], np.int64))
    for room in sorted(rooms, key=lambda room: str(names.rooms[room])):
        after = fewest_rows.minimize_rows(after, stored.members(room) & allowed, settings.max_chain)
    return PlannedGroups(stored, names, before, after, (), deduplicated)


def _room_plan(
    room_id: str, of_room: BoolArray, changed: BoolArray, rows: tuple[Int64Array, Int64Array],
    sizes: tuple[Int64Array, Int64Array],
    chains: tuple[Int64Array, Int64Array],
) -> RoomPlan:  # fmt: skip
    rewritten = of_room & changed
    return RoomPlan(
        room_id=room_id,
        groups=int(of_room.sum()),
        groups_to_rewrite=int(rewritten.sum()),
        rows_before=int(rows[0][of_room].sum()),
        rows_after=int(rows[1][of_room].sum()),
        bytes_before=int(sizes[0][of_room].sum()),
        bytes_after=int(sizes[1][of_room].sum()),
        rows_to_delete=int(rows[0][rewritten].sum()),
        rows_to_insert=int(rows[1][rewritten].sum()),
        bytes_needed=int(sizes[1][rewritten].sum()),
        longest_chain_before=int(chains[0][of_room].max()),
        longest_chain_after=int(chains[1][of_room].max()),
    )


def _sizes(names: CodeTexts, groups: StateGroups) -> Int64Array:
    """Bytes that the rows of each group take, by their texts."""
    kinds, state_keys, events = (_lengths(texts) for texts in (names.types, names.state_keys, names.events))
    rooms = _lengths(names.rooms).mean() if len(names.rooms) else 0
    key = (kinds[names.key_types] + state_keys[names.key_state_keys])[groups.keys]
    row = _HEAP_ROW + rooms + key + events[groups.events] + _INDEX_ROW + key
    total = np.concatenate([[0], np.cumsum(row)])
    return cast(Int64Array, (total[groups.starts[1:]] - total[groups.starts[:-1]]).astype(np.int64))


def _lengths(texts: pa.Array) -> Int64Array:
    """Bytes of each text with its length."""
    return cast(Int64Array, pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64) + 1)
