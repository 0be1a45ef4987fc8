"""Chunk after chunk through some rooms, in the order and with the progress of Synapse's own compressor."""

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from synapse_lakehouse.compressor.algorithm import levels
from synapse_lakehouse.compressor.algorithm.errors import InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.in_memory_groups import GroupStore
from synapse_lakehouse.compressor.algorithm.level_sizes import Levels, reset_levels
from synapse_lakehouse.compressor.algorithm.state_fingerprints import fingerprint_states


@dataclass(frozen=True)
class RoomProgress:
    """How far a room is compressed: the id of the last group, and the levels to go on with."""

    last: int
    levels: Levels


@dataclass(frozen=True)
class ChunkResult:
    """What one chunk of a room came to. The rows are those of the chunk and of what it rests on."""

    room: int
    first: int
    """Id of the first group; the least one of any room that was not compressed before."""
    progress: RoomProgress
    rows_before: int
    rows_after: int
    """What the levels would leave."""
    is_skipped: bool
    """Whether the chunk was left as it is, because the levels would leave more rows than there were."""


def compress_chunks(
    stored: GroupStore,
    configured: Levels,
    chunk_size: int,
    known: Mapping[int, RoomProgress],
    oldest: int = 0,
    *,
    rooms: Collection[int] | None = None,
    begun: Collection[int] = (),
) -> Iterator[ChunkResult]:
    """Compress ``stored`` in place, always the room with the oldest group left, until all are compressed.

    :param known: the progress that was saved, by room; its levels go before those ``configured``.
    :param oldest: no older group makes a room's turn: ``first`` of the last step before.
    :param rooms: those to compress; all if omitted.
    :param begun: last groups of chunks that were stored in part when a compression was stopped. They were worth it, and
        are finished whatever their rows are now.
    :raises InvalidStateGroupsError: when a group would resolve to something else, which leaves ``stored`` as after the
        last step.
    """
    progress = dict(known)
    left: list[tuple[int, int]] = []
    for room in stored.rooms if rooms is None else rooms:
        _push(left, stored, room, progress.get(room), oldest)
    while left:
        first, room = heapq.heappop(left)
        step = _compress_chunk(stored, room, first, progress.get(room), configured, chunk_size, begun)
        progress[room] = step.progress
        _push(left, stored, room, step.progress, oldest)
        yield step


def _push(
    left: list[tuple[int, int]], stored: GroupStore, room: int, progress: RoomProgress | None, oldest: int
) -> None:
    first = stored.first_after(room, max(progress.last, oldest - 1) if progress else oldest - 1)
    if first is not None:
        heapq.heappush(left, (first, room))


def _compress_chunk(
    stored: GroupStore, room: int, first: int, progress: RoomProgress | None, configured: Levels, chunk_size: int,
    begun: Collection[int],
) -> ChunkResult:  # fmt: skip
    saved = progress.levels if progress else configured
    heads = [level.head for level in saved if level.head is not None]
    chunk = stored.take(room, progress.last if progress else None, chunk_size, heads)
    assert chunk is not None
    compressed, after = levels.compress_by_levels(chunk.groups, chunk.in_range, saved)
    rows_before, rows_after = len(chunk.groups.keys), len(compressed.keys)
    is_skipped = rows_after > rows_before and chunk.last not in begun
    if is_skipped:
        # The reference writes the configured levels over the saved ones by number.
        after = reset_levels(saved, configured) if progress else configured
    else:
        if (wrong := fingerprint_states(chunk.groups).differ(fingerprint_states(compressed))).any():
            raise InvalidStateGroupsError(
                f"state group {chunk.groups.ids[wrong.argmax()]} would resolve to another state"
            )
        stored.put(chunk, compressed)
    return ChunkResult(room, first, RoomProgress(chunk.last, after), rows_before, rows_after, is_skipped)
