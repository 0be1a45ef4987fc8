"""Compress rooms chunk by chunk, in the order and with the saved progress of Synapse's own compressor."""

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
    """Progress of a room: ID of the last compressed group, and the levels at that point."""

    last: int
    levels: Levels


@dataclass(frozen=True)
class ChunkResult:
    """Result of one chunk of a room.

    The row counts include the groups outside the chunk that are in the chains of its groups, and of the levels' heads.
    """

    room: int
    first: int
    """ID of the first group."""
    progress: RoomProgress
    rows_before: int
    rows_after: int
    """Rows after compression by levels."""
    is_skipped: bool
    """Whether the chunk was not changed, because the levels would have needed more rows."""


def compress_chunks(
    stored: GroupStore,
    configured: Levels,
    chunk_size: int,
    saved: Mapping[int, RoomProgress],
    oldest: int = 0,
    *,
    rooms: Collection[int] | None = None,
    unfinished: Collection[int] = (),
) -> Iterator[ChunkResult]:
    """Compress ``stored`` in place. Each chunk is taken from the room with the oldest remaining group.

    :param saved: saved progress by room; its levels take precedence over ``configured``.
    :param oldest: ID of the first group to consider; ``first`` of the previous result, if there is one.
    :param rooms: codes of the rooms to compress; all if omitted.
    :param unfinished: last groups of chunks that an interrupted compression wrote in part. They are finished even if
        that adds rows.
    :raises InvalidStateGroupsError: when a state would change; ``stored`` then contains only the changes of the chunks
        before.
    """
    progress = dict(saved)
    queue: list[tuple[int, int]] = []
    for room in stored.rooms if rooms is None else rooms:
        _push(queue, stored, room, progress.get(room), oldest)
    while queue:
        first, room = heapq.heappop(queue)
        result = _compress_chunk(stored, room, first, progress.get(room), configured, chunk_size, unfinished)
        progress[room] = result.progress
        _push(queue, stored, room, result.progress, oldest)
        yield result


def _push(
    queue: list[tuple[int, int]], stored: GroupStore, room: int, progress: RoomProgress | None, oldest: int
) -> None:
    first = stored.first_after(room, max(progress.last, oldest - 1) if progress else oldest - 1)
    if first is not None:
        heapq.heappush(queue, (first, room))


def _compress_chunk(
    stored: GroupStore, room: int, first: int, progress: RoomProgress | None, configured: Levels, chunk_size: int,
    unfinished: Collection[int],
) -> ChunkResult:  # fmt: skip
    before = progress.levels if progress else configured
    heads = [level.head for level in before if level.head is not None]
    chunk = stored.take_chunk(room, progress.last if progress else None, chunk_size, heads)
    assert chunk is not None
    compressed, after = levels.compress_by_levels(chunk.groups, chunk.in_range, before)
    rows_before, rows_after = len(chunk.groups.keys), len(compressed.keys)
    is_skipped = rows_after > rows_before and chunk.last not in unfinished
    if is_skipped:
        # Synapse's compressor overwrites each saved level with the configured level of the same number.
        after = reset_levels(before, configured) if progress else configured
    else:
        if (changed := fingerprint_states(chunk.groups).differ(fingerprint_states(compressed))).any():
            raise InvalidStateGroupsError(
                f"state group {chunk.groups.ids[changed.argmax()]} would resolve to another state"
            )
        stored.put_chunk(chunk, compressed)
    return ChunkResult(room, first, RoomProgress(chunk.last, after), rows_before, rows_after, is_skipped)
