"""Restore a room from undo files."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from synapse_lakehouse.compressor.algorithm.compare_states import find_differing_groups, replace_groups
from synapse_lakehouse.compressor.algorithm.encode_tables import StateTables
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.plan_room import RoomPlan, summarize_stored_room
from synapse_lakehouse.compressor.algorithm.row_changes import compute_restoring_changes
from synapse_lakehouse.compressor.postgres import progress_store
from synapse_lakehouse.compressor.postgres.room_reader import RoomReader
from synapse_lakehouse.compressor.postgres.snapshot_connections import ReaderFactory
from synapse_lakehouse.compressor.postgres.transaction import GroupRooms
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.read_cost import cost_columns, sample_groups
from synapse_lakehouse.compressor.undo_file import UndoFile, contents_before
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import Connection


def restore_room(
    undo_files: Sequence[UndoFile], open_reader: ReaderFactory, writer: GroupWriter, *, repair: bool
) -> dict[str, Any]:
    """Restore a room from its undo files, the latest first.

    :param repair: also restore groups whose state differs now.
    :returns: columns of ``audit.compression_runs`` from ``rows_before`` on; ``groups_rewritten``: restored groups.
    :raises InvalidStateGroupsError: for groups that Synapse cannot have stored, unless ``repair`` corrects them.
    :raises RoomSkippedError: when the room no longer exists.
    :raises CompressorError: when a state is wrong afterwards, or differed before and ``repair`` is not set.
    """
    started_at = time.monotonic()
    room_id, files = undo_files[0].room_id, sorted(undo_files, key=lambda file: file.written, reverse=True)
    with open_reader() as reader:
        if repair:
            _require_same_timeline(files, reader)
        room, disk_before = reader.read_room(room_id), reader.measure_disk_bytes()
        cost_before = reader.measure_read_cost(sample_groups(room.ids))
    before = _summarize(room.contents, room_id, repair=repair)
    expected = contents_before(files, room.contents) if repair else room.contents
    restored, skipped, changed = 0, 0, np.empty(0, np.int64)
    for file in files:
        counts = restore_groups(file, None if repair else expected, room.contents, writer, room.group_rooms)
        restored, skipped, changed = restored + counts[0], skipped + counts[1], np.union1d(changed, counts[2])
        with open_reader() as reader:
            room = reader.read_room(room_id)
    with open_reader() as reader:
        disk_after = reader.measure_disk_bytes()
        cost_after = reader.measure_read_cost(cost_before.groups) if cost_before else None
    _require_states(room_id, expected, room.contents, restored, changed)
    after = summarize_stored_room(room.contents, room_id)
    # If the room could not be resolved before, its former numbers are unknown.
    before = before or after
    return {
        "rows_before": before.rows_before,
        "rows_after": after.rows_before,
        "bytes_before": before.bytes_before,
        "bytes_after": after.bytes_before,
        "groups_rewritten": restored,
        "groups_skipped": skipped,
        "longest_chain": after.longest_chain_before,
        "seconds": time.monotonic() - started_at,
        "longest_lock_ms": 1000 * writer.pace.longest,
        "undo": [str(file.path) for file in files],
        **cost_columns(cost_before, cost_after, (disk_before, disk_after)),
    }


def _require_same_timeline(files: Sequence[UndoFile], reader: RoomReader) -> None:
    position = reader.read_wal_position()
    if outdated := [file.path for file in files if file.may_be_of_other_groups(position)]:
        raise CompressorError(
            f"The database was restored or failed over since {outdated[0]} was written, so the IDs in this file may "
            "belong to other state groups. Nothing was restored. Without --repair, the command restores only groups "
            "with an unchanged state."
        )


def _summarize(contents: StateTables, room_id: str, *, repair: bool) -> RoomPlan | None:
    try:
        return summarize_stored_room(contents, room_id)
    except InvalidStateGroupsError:
        if not repair:
            raise
        return None


def _require_states(room_id: str, expected: StateTables, now: StateTables, restored: int, changed: Int64Array) -> None:
    """:param changed: groups that were not restored, because their states differ from the states in the undo files."""
    if len(wrong := find_differing_groups(expected, now)):
        raise CompressorError(
            f"{len(wrong)} state groups of {room_id}, such as {wrong[0]}, have a wrong state now. Please report this, "
            "with the undo files."
        )
    if len(changed):
        raise CompressorError(
            f"{restored} state groups of {room_id} were restored. {len(changed)} state groups, such as {changed[0]}, "
            "were skipped, because their states differ from the undo files. If `lakehouse compress verify` or the "
            "DAG's task verify reported this room, the files are right: add --repair. If the database was restored "
            "from a backup after these files were written, do not use the files: they belong to other groups."
        )


def restore_groups(
    file: UndoFile, expected: StateTables | None, now: StateTables, writer: GroupWriter, group_rooms: GroupRooms
) -> tuple[int, int, Int64Array]:
    """Restore the groups of an undo file that still exist, unless their states would differ from ``expected``.

    The saved progress of the room is deleted, so that the room can be compressed again.

    :param expected: tables with the correct states; None if the states of ``file`` are correct.
    :returns: number of restored groups, number of skipped groups, and the groups whose states would differ.
    """
    restorable = groups = file.restorable_groups(now)
    while expected and len(groups):
        restored = replace_groups(now, groups, file.contents(now.groups))
        differing = np.intersect1d(find_differing_groups(expected, restored), groups)
        if not len(differing):
            break
        groups = np.setdiff1d(groups, differing)

    def delete_progress(connection: Connection, end: int) -> Callable[[], None]:
        progress_store.delete_progress(connection, file.room_id)
        return lambda: None

    changes = compute_restoring_changes((now.edges, now.rows), groups, file.edges, file.rows)
    written_groups = len(groups) - len(writer.write(changes, group_rooms, delete_progress))
    return written_groups, len(file.groups) - written_groups, np.setdiff1d(restorable, groups)
