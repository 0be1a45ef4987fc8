"""Store a room again as undo files have it, on an operator's word, and see what that came to."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from synapse_lakehouse.compressor import undo_file as undo_files
from synapse_lakehouse.compressor.algorithm.compare_states import find_differing_groups
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.estimate import summarize_stored_room
from synapse_lakehouse.compressor.postgres.snapshot_reader import ReaderFactory
from synapse_lakehouse.compressor.postgres.writer import GroupWriter
from synapse_lakehouse.compressor.read_cost import cost_columns, sample_groups
from synapse_lakehouse.compressor.restore_groups import restore_groups
from synapse_lakehouse.compressor.undo_file import UndoFile


def restore_room(
    kept: Sequence[UndoFile], reading: ReaderFactory, writer: GroupWriter, *, repair: bool
) -> dict[str, Any]:
    """Put back the room that all of ``kept`` are of, file by file, the latest first.

    :param repair: whether the files are right where a group resolves otherwise now.
    :returns: columns of ``audit.compression_runs`` from ``rows_before`` on; ``groups_rewritten`` were put back.
    :raises InvalidStateGroupsError: for groups that cannot be what Synapse stored, and are not to be repaired or
        cannot be.
    :raises RoomSkippedError: when there is no such room any more.
    :raises CompressorError: when a group resolves to another state afterwards, or did before and is not to be repaired.
    """
    began = time.monotonic()
    room_id, files = kept[0].room_id, sorted(kept, key=lambda one: one.written, reverse=True)
    written, left, odd = 0, 0, np.empty(0, np.int64)
    with reading() as reader:
        if repair and (strange := [one.path for one in files if one.may_be_of_other_groups(reader.lineage())]):
            raise CompressorError(
                f"The database was restored or failed over since {strange[0]} was written, and may have given its ids "
                "to other state groups. Nothing was put back. Without --repair, what still resolves as it did then is "
                "put back, and nothing else."
            )
        room, disk_before = reader.room(room_id), reader.on_disk()
        cost_before = reader.read_cost(sample_groups(room.ids))
    try:
        then = summarize_stored_room(room.contents, room_id)
    except InvalidStateGroupsError:
        if not repair:
            raise
        then = None
    right = undo_files.contents_before(files, room.contents) if repair else room.contents
    for one in files:
        done, alone, otherwise = restore_groups(one, None if repair else right, room.contents, writer, room.known)
        written, left, odd = written + done, left + alone, np.union1d(odd, otherwise)
        with reading() as reader:
            room = reader.room(room_id)
    with reading() as reader:
        disk_after = reader.on_disk()
        cost_after = reader.read_cost(cost_before.groups) if cost_before else None
    after = room.contents
    if len(wrong := find_differing_groups(right, after)):
        raise CompressorError(
            f"State group {wrong[0]} of {room_id} resolves to another state than it should now, {len(wrong)} do so. "
            "Please report this, with the undo files."
        )
    if len(odd):
        raise CompressorError(
            f"{written} state groups of {room_id} were put back. {len(odd)} others, such as {odd[0]}, resolve to "
            "another state now than they did when the undo files were written, and were left as they are. If "
            "`lakehouse compress verify` or the DAG's task verify named this room, the files are right: add --repair. "
            "If the database was restored from a backup since, they are of other groups: do not use them."
        )
    now = summarize_stored_room(after, room_id)
    # Of what could not be resolved nothing was ever said to have been given back.
    was = then or now
    return {
        "rows_before": was.rows_before,
        "rows_after": now.rows_before,
        "bytes_before": was.bytes_before,
        "bytes_after": now.bytes_before,
        "groups_rewritten": written,
        "groups_left": left,
        "longest_chain": now.longest_chain_before,
        "seconds": time.monotonic() - began,
        "longest_lock_ms": 1000 * writer.pace.longest,
        "undo": [str(one.path) for one in files],
        **cost_columns(cost_before, cost_after, (disk_before, disk_after)),
    }
