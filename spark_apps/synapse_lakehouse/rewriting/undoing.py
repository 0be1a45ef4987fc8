"""Store a room again as undo files have it, on an operator's word, and see what that came to."""

import time
from collections.abc import Sequence
from typing import Any

from synapse_lakehouse.compression.comparison import differing
from synapse_lakehouse.compression.errors import CompressorError
from synapse_lakehouse.compression.plan import as_stored
from synapse_lakehouse.rewriting.putting_back import put_back
from synapse_lakehouse.rewriting.read_cost import sampled, seen
from synapse_lakehouse.rewriting.snapshots import Reading
from synapse_lakehouse.rewriting.undo import Undo
from synapse_lakehouse.rewriting.writing import Writer


def undo(kept: Sequence[Undo], reading: Reading, writer: Writer) -> dict[str, Any]:
    """Put back the room that all of ``kept`` are of, file by file, the latest first.

    :returns: columns of ``audit.compression_runs`` from ``rows_before`` on; ``groups_rewritten`` were put back.
    :raises BadGroups: for groups that cannot be what Synapse stored.
    :raises CompressorError: when a group resolves to another state afterwards.
    """
    began = time.monotonic()
    room_id, files = kept[0].room_id, sorted(kept, key=lambda one: one.written, reverse=True)
    written = left = 0
    with reading() as reader:
        room, disk_before = reader.room(room_id), reader.on_disk()
        cost_before = reader.read_cost(sampled(room.ids))
    before = room.contents
    for one in files:
        done, alone = put_back(one, room.contents, room.contents, writer, room.known)
        written, left = written + done, left + alone
        with reading() as reader:
            room = reader.room(room_id)
    with reading() as reader:
        disk_after = reader.on_disk()
        cost_after = reader.read_cost(cost_before.groups) if cost_before else None
    after = room.contents
    if len(wrong := differing(before, after)):
        raise CompressorError(
            f"State group {wrong[0]} of {room_id} resolves to another state than before it was put back, {len(wrong)} "
            "do so. Please report this, with the undo files."
        )
    then, now = as_stored(before, room_id), as_stored(after, room_id)
    return {
        "rows_before": then.rows_before,
        "rows_after": now.rows_before,
        "bytes_before": then.bytes_before,
        "bytes_after": now.bytes_before,
        "groups_rewritten": written,
        "groups_left": left,
        "longest_chain": now.longest_chain_before,
        "seconds": time.monotonic() - began,
        "longest_lock_ms": 1000 * writer.pace.longest,
        "undo": [str(one.path) for one in files],
        **seen(cost_before, cost_after, (disk_before, disk_after)),
    }
