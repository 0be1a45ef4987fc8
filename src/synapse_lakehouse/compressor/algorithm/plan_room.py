"""Plan the compression of rooms: rows, bytes and chain lengths before and after."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.compressor.algorithm import fewest_rows
from synapse_lakehouse.compressor.algorithm.chain_limit import limit_chains
from synapse_lakehouse.compressor.algorithm.chunks import ChunkResult, RoomProgress, compress_chunks
from synapse_lakehouse.compressor.algorithm.compression_settings import Layout, Strategy
from synapse_lakehouse.compressor.algorithm.encode_tables import CodeTexts, encode_tables
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.in_memory_groups import GroupStore
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states
from synapse_lakehouse.compressor.algorithm.state_groups import StateGroups
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
    """Groups whose duplicate rows will be deleted."""

    @property
    def changed(self) -> BoolArray:
        """Which groups have to be rewritten."""
        return self.before.changed(self.after) | self.deduplicated

    @property
    def rows_before(self) -> Int64Array:
        """Stored rows of each group, duplicates included."""
        return cast(Int64Array, self.before.rows + self.stored.copies.rows)

    def room_plan(self, room: int) -> RoomPlan:
        """Return the plan of the room with the code ``room``."""
        changed, copies = self.changed, self.stored.copies
        duplicate_rows = np.where(changed, 0, copies.rows)
        duplicate_bytes = _sizes(self.names, copies)
        rows = self.rows_before, self.after.rows + duplicate_rows
        sizes = (
            _sizes(self.names, self.before) + duplicate_bytes,
            _sizes(self.names, self.after) + np.where(changed, 0, duplicate_bytes),
        )
        is_in_room = self.stored.groups_in_room(room)
        rewritten = is_in_room & changed
        return RoomPlan(
            room_id=str(self.names.rooms[room]),
            groups=int(is_in_room.sum()),
            groups_to_rewrite=int(rewritten.sum()),
            rows_before=int(rows[0][is_in_room].sum()),
            rows_after=int(rows[1][is_in_room].sum()),
            bytes_before=int(sizes[0][is_in_room].sum()),
            bytes_after=int(sizes[1][is_in_room].sum()),
            rows_to_delete=int(rows[0][rewritten].sum()),
            rows_to_insert=int(rows[1][rewritten].sum()),
            bytes_needed=int(sizes[1][rewritten].sum()),
            longest_chain_before=int(self.before.chain_nodes()[is_in_room].max()),
            longest_chain_after=int(self.after.chain_nodes()[is_in_room].max()),
        )


def summarize_stored_room(contents: tuple[pa.Table, pa.Table, pa.Table], room_id: str) -> RoomPlan:
    """Return a plan that changes nothing: the room as it is stored.

    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored.
    """
    stored, names = encode_tables(*contents)
    groups = stored.groups()
    planned = PlannedGroups(stored, names, groups, groups, (), np.zeros(len(groups), bool))
    return planned.room_plan(names.rooms.to_pylist().index(room_id))


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
    before, members = stored.groups(), stored.groups_in_room(room)
    allowed = members & ~np.isin(before.ids, np.fromiter(untouchable, np.int64))
    deduplicated = allowed & (stored.copies.rows > 0)
    if layout.strategy is Strategy.LEVELS:
        levels, size, saved = layout.default_levels, layout.chunk_size, {} if progress is None else {room: progress}
        steps = tuple(compress_chunks(stored, levels, size, saved, rooms=[room], unfinished=unfinished))
        planned = PlannedGroups(stored, names, before, stored.groups(), steps, deduplicated)
        return planned, planned.room_plan(room)
    bases = allowed & ~np.isin(before.ids, np.fromiter(excluded, np.int64))
    after = limit_chains(fewest_rows.minimize_rows(before, bases, layout.max_chain), allowed, layout.max_chain)
    if (changed := fingerprint_states(before).differ(fingerprint_states(after))).any():
        raise InvalidStateGroupsError(f"state group {after.ids[changed.argmax()]} would resolve to another state")
    planned = PlannedGroups(stored, names, before, after, (), deduplicated)
    return planned, planned.room_plan(room)


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
