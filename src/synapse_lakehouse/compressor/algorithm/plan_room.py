"""Plan the compression of rooms: rows, bytes and chain lengths before and after."""

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
from synapse_lakehouse.compressor.algorithm.compression_settings import Layout, Strategy
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.in_memory_groups import GroupStore
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import StateGroups
from synapse_lakehouse.compressor.algorithm.state_tables import CodeTexts, encode_tables
from synapse_lakehouse.numba_jit import BoolArray, Int64Array

_HEAP_ROW, _INDEX_ROW = 24 + 4 + 8, 8 + 4 + 8
"""Bytes of a row of ``state_groups_state`` and of its index entry, texts excluded."""


@dataclass(frozen=True)
class RoomPlan:
    """The plan of one room. Rows and bytes are those of ``state_groups_state``, including its index."""

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
    """Additional bytes until VACUUM has freed the old rows."""
    longest_chain_before: int
    longest_chain_after: int


@dataclass(frozen=True)
class PlannedGroups:
    """State groups of some rooms: the stored groups and the planned groups."""

    stored: GroupStore
    names: CodeTexts
    before: StateGroups
    after: StateGroups
    steps: tuple[ChunkResult, ...]
    """Only for ``levels``: the result of each chunk."""
    deduplicated: BoolArray
    """Groups with duplicate rows, which will be deleted."""

    @property
    def changed(self) -> BoolArray:
        """Which groups have to be rewritten."""
        return self.before.changed(self.after) | self.deduplicated

    @property
    def rows_before(self) -> Int64Array:
        """Stored rows of each group, duplicates included."""
        return cast(Int64Array, self.before.rows + self.stored.copies.rows)

    def room_plans(self, only: Collection[int] | None = None) -> list[RoomPlan]:
        """Return the plan of each room, sorted by room ID.

        :param only: codes of the rooms; all if omitted.
        """
        changed, copies = self.changed, self.stored.copies
        duplicate_rows = np.where(changed, 0, copies.rows)
        duplicate_bytes = _sizes(self.names, copies)
        rows = self.rows_before, self.after.rows + duplicate_rows
        sizes = (
            _sizes(self.names, self.before) + duplicate_bytes,
            _sizes(self.names, self.after) + np.where(changed, 0, duplicate_bytes),
        )
        chains = self.before.chain_nodes(), self.after.chain_nodes()
        rooms = self.names.rooms.to_pylist()
        plans = (
            _room_plan(rooms[room], self.stored.members(room), changed, rows, sizes, chains)
            for room in (self.stored.rooms if only is None else only)
        )
        return sorted(plans, key=lambda plan: plan.room_id)


def estimate_rooms(
    contents: tuple[pa.Table, pa.Table, pa.Table], layout: Layout, saved: Mapping[str, RoomProgress]
) -> list[RoomPlan]:
    """Plan each room in the tables; the plans are sorted by room ID.

    :param contents: ``state_groups``, ``state_group_edges`` and ``state_groups_state`` of rooms. Their chains must not
        lead to other rooms. Rooms that are linked by chains are planned together.
    :param saved: saved progress by room ID; only ``levels`` has any.
    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    """
    stored, names = encode_tables(*contents)
    rooms = names.rooms.to_pylist()
    progress = {rooms.index(room_id): saved[room_id] for room_id in saved if room_id in rooms}
    return _plan_groups(stored, names, layout, progress, stored.rooms, (), (), ()).room_plans()


def summarize_stored_room(contents: tuple[pa.Table, pa.Table, pa.Table], room_id: str) -> RoomPlan:
    """Return a plan that changes nothing: the room as it is stored.

    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    """
    stored, names = encode_tables(*contents)
    groups = stored.groups()
    no_groups = np.zeros(len(groups), bool)
    return PlannedGroups(stored, names, groups, groups, (), no_groups).room_plans(
        [names.rooms.to_pylist().index(room_id)]
    )[0]


def estimate_room(
    contents: tuple[pa.Table, pa.Table, pa.Table],
    room_id: str,
    layout: Layout,
    progress: RoomProgress | None,
    *,
    excluded: Collection[int] = (),
    untouchable: Collection[int] = (),
    unfinished: Collection[int] = (),
) -> tuple[PlannedGroups, RoomPlan]:
    """Plan one room.

    ``best`` also shortens chains that are too long, as Synapse does, even if that adds rows. Another compressor, or an
    incompletely applied plan, can leave such chains.

    :param contents: the three tables with the groups of the room, the heads of its levels, and the chains of both.
    :param progress: saved progress; only ``levels`` has any.
    :param excluded: IDs of groups that ``best`` does not use as a base, and changes only to shorten a chain.
    :param untouchable: IDs of groups that ``best`` never changes.
    :param unfinished: last group of a partly written chunk; see ``compress_chunks``.
    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    """
    stored, names = encode_tables(*contents)
    room = names.rooms.to_pylist().index(room_id)
    planned = _plan_groups(
        stored, names, layout, {} if progress is None else {room: progress}, [room], excluded, untouchable, unfinished
    )
    if layout.strategy is Strategy.BEST:
        allowed = stored.members(room) & ~np.isin(planned.before.ids, np.fromiter(untouchable, np.int64))
        after = limit_chains(planned.after, allowed, layout.max_chain)
        if (changed := fingerprint_states(planned.before).differ(fingerprint_states(after))).any():
            raise InvalidStateGroupsError(f"state group {after.ids[changed.argmax()]} would resolve to another state")
        planned = replace(planned, after=after)
    return planned, planned.room_plans([room])[0]


def _plan_groups(
    stored: GroupStore, names: CodeTexts, layout: Layout, progress: Mapping[int, RoomProgress],
    rooms: Collection[int], excluded: Collection[int], untouchable: Collection[int], unfinished: Collection[int],
) -> PlannedGroups:  # fmt: skip
    before = stored.groups()
    is_in_rooms = reduce(np.logical_or, map(stored.members, rooms), np.zeros(len(before), bool))
    deduplicated = is_in_rooms & (stored.copies.rows > 0) & ~np.isin(before.ids, np.fromiter(untouchable, np.int64))
    if layout.strategy is Strategy.LEVELS:
        levels, size = layout.default_levels, layout.chunk_size
        steps = tuple(compress_chunks(stored, levels, size, progress, rooms=rooms, unfinished=unfinished))
        return PlannedGroups(stored, names, before, stored.groups(), steps, deduplicated)
    after = before
    allowed = ~np.isin(before.ids, np.fromiter([*excluded, *untouchable], np.int64))
    for room in sorted(rooms, key=lambda room: str(names.rooms[room])):
        after = fewest_rows.minimize_rows(after, stored.members(room) & allowed, layout.max_chain)
    return PlannedGroups(stored, names, before, after, (), deduplicated)


def _room_plan(
    room_id: str, is_in_room: BoolArray, changed: BoolArray, rows: tuple[Int64Array, Int64Array],
    sizes: tuple[Int64Array, Int64Array], chains: tuple[Int64Array, Int64Array],
) -> RoomPlan:  # fmt: skip
    rewritten = is_in_room & changed
    return RoomPlan(
        room_id=room_id,
        groups=int(is_in_room.sum()),
        groups_to_rewrite=int(rewritten.sum()),
        rows_before=int(rows[0][is_in_room].sum()),
        rows_after=int(rows[1][is_in_room].sum()),
        bytes_before=int(sizes[0][is_in_room].sum()),
        bytes_after=int(sizes[1][is_in_room].sum()),
        rows_to_delete=int(rows[0][rewritten].sum()),
        rows_to_insert=int(rows[1][rewritten].sum()),
        bytes_needed=int(sizes[1][rewritten].sum()),
        longest_chain_before=int(chains[0][is_in_room].max()),
        longest_chain_after=int(chains[1][is_in_room].max()),
    )


def _sizes(names: CodeTexts, groups: StateGroups) -> Int64Array:
    """Estimated bytes of the rows of each group."""
    kinds, state_keys, events = (_lengths(texts) for texts in (names.types, names.state_keys, names.events))
    rooms = _lengths(names.rooms).mean() if len(names.rooms) else 0
    key = (kinds[names.key_types] + state_keys[names.key_state_keys])[groups.keys]
    row = _HEAP_ROW + rooms + key + events[groups.events] + _INDEX_ROW + key
    total = np.concatenate([[0], np.cumsum(row)])
    return cast(Int64Array, (total[groups.starts[1:]] - total[groups.starts[:-1]]).astype(np.int64))


def _lengths(texts: pa.Array) -> Int64Array:
    """Bytes of each text, with the byte for its length."""
    return cast(Int64Array, pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64) + 1)
