"""One transaction that rewrites a few groups while Synapse is running.

Synapse marks a group as pending deletion minutes before the deletion, and locks its row for the deletion. Therefore
this module locks the rows of the groups to write, and of their present and new predecessors, in the order of their IDs.
Then it checks these groups again. Groups that were deleted, are pending deletion or have changed since the plan are
skipped.

Releases of Synapse before 1.124 mark nothing. Their repeatable-read transaction finds the deltas of the groups to
delete, and stores these deltas in full, before it deletes the groups. Therefore this module also updates the rows of
new predecessors: a deletion that does not see their new deltas fails with a serialization error, and Synapse repeats
the deletion. The schema does not show whether such a release is running: after a rollback, and while the processes are
upgraded one after the other, an old release runs on the schema of a later release.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from synapse_lakehouse.compressor.algorithm.encode_tables import StateTables
from synapse_lakehouse.compressor.algorithm.row_changes import RowChanges
from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.numba_jit import BoolArray, Int64Array
from synapse_lakehouse.postgres.connection import Connection, has_table

_LOCK: Final = "SELECT id FROM state_groups WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"
_PENDING: Final = "SELECT state_group FROM state_groups_pending_deletion WHERE state_group = ANY(%s)"
_UPDATE_NEW_PREV: Final = "UPDATE state_groups SET event_id = event_id WHERE id = ANY(%s)"
_EDGES: Final = "SELECT state_group, prev_state_group FROM state_group_edges WHERE state_group = ANY(%s)"
_DELETE: Final = (
    "DELETE FROM state_groups_state WHERE state_group = ANY(%s)",
    "DELETE FROM state_group_edges WHERE state_group = ANY(%s)",
)
_INSERT_EDGES: Final = (
    "INSERT INTO state_group_edges (state_group, prev_state_group) SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
)
_COPY: Final = (
    "COPY state_groups_state (state_group, type, state_key, event_id, room_id) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
)
_QUOTED: Final = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")


class GroupRooms:
    """The groups that existed when the plan was made, with their rooms."""

    def __init__(self, contents: StateTables, room_id: str) -> None:
        """:param room_id: the room that is compressed."""
        self._rooms = dict(zip(contents.groups["id"].to_pylist(), contents.groups["room_id"].to_pylist(), strict=True))
        self._room_id = room_id

    def contains(self, groups: Int64Array) -> BoolArray:
        """Return which of ``groups`` existed."""
        return np.array([group in self._rooms for group in groups.tolist()], bool)

    def find_room(self, group: int) -> str:
        """Return the room of a group; for a deleted group the room that is compressed, as in Synapse's compressor."""
        return str(self._rooms.get(group, self._room_id))


def encode_rows(changes: RowChanges, indices: Int64Array, group_rooms: GroupRooms) -> memoryview:
    """Encode the new rows of the changes at ``indices`` for COPY, before their groups are locked."""
    rows = changes.rows(indices)
    groups, numbers = np.unique(rows["state_group"].to_numpy(), return_inverse=True)
    rooms = pa.array([group_rooms.find_room(group) for group in groups.tolist()], pa.string()).take(pa.array(numbers))
    text = pa.BufferOutputStream()
    pa_csv.write_csv(rows.append_column("room_id", rooms), text, _QUOTED)
    return memoryview(text.getvalue())


def rewrite_groups(
    connection: Connection, changes: RowChanges, start: int, end: int, group_rooms: GroupRooms, new_rows: memoryview
) -> Int64Array:
    """Write the changes from ``start`` to ``end`` in the open transaction.

    :param new_rows: result of :func:`encode_rows` for these changes.
    :returns: IDs of the groups that were skipped.
    """
    is_safe = _find_safe_changes(connection, changes, start, end, group_rooms)
    indices = start + np.flatnonzero(is_safe)
    ids, new_prev = changes.ids[indices], changes.new_prev[indices]
    for statement in _DELETE:
        connection.execute(statement.encode(), [ids.tolist()])
    has_prev = new_prev != NONE
    connection.execute(_INSERT_EDGES.encode(), [ids[has_prev].tolist(), new_prev[has_prev].tolist()])
    with connection.cursor() as cursor, cursor.copy(_COPY.encode()) as copy:
        copy.write(new_rows if is_safe.all() else encode_rows(changes, indices, group_rooms))
    return changes.ids[start:end][~is_safe]


def _find_safe_changes(
    connection: Connection, changes: RowChanges, start: int, end: int, group_rooms: GroupRooms
) -> BoolArray:
    touched = changes.touched_groups(start, end)
    existing = _ids(connection.execute(_LOCK.encode(), [touched.tolist()]))
    # The existence of a group must be the same as in the plan.
    unsafe = touched[np.isin(touched, existing) != group_rooms.contains(touched)]
    if has_table(connection, "state_groups_pending_deletion"):
        unsafe = np.concatenate([unsafe, _ids(connection.execute(_PENDING.encode(), [touched.tolist()]))])
    connection.execute(_UPDATE_NEW_PREV.encode(), [np.setdiff1d(changes.new_prev[start:end], unsafe).tolist()])
    ids, new_prev, old_edges = changes.ids[start:end], changes.new_prev[start:end], changes.edges_of(start, end)
    present_edges = set(connection.execute(_EDGES.encode(), [ids.tolist()]))
    changed = np.array([group for group, _ in present_edges ^ set(map(tuple, old_edges.tolist()))], np.int64)
    skipped = np.concatenate([unsafe, changed, old_edges[np.isin(old_edges[:, 1], unsafe), 0]])
    return ~(np.isin(ids, skipped) | np.isin(new_prev, unsafe))


def _ids(cursor: Any) -> Int64Array:
    return np.array([group for (group,) in cursor], np.int64)


@dataclass
class TransactionSize:
    """The number of rows and edges per transaction, adapted so that its locks last for about ``seconds``."""

    seconds: float = 0.03
    work: int = 300
    longest: float = 0.0
    """Longest time in seconds that a transaction had its locks."""

    def record_success(self, seconds: float, work: int) -> None:
        """Adapt to the duration of a committed transaction."""
        self.longest = max(self.longest, seconds)
        possible = work * self.seconds / max(seconds, 1e-4)
        self.work = int(min(max(possible, self.work / 4, 50), self.work * 2, 20_000))

    def record_conflict(self, seconds: float) -> None:
        """Reduce the size after a lock conflict that rolled a transaction back after ``seconds``."""
        self.longest = max(self.longest, seconds)
        self.work = max(self.work // 4, 50)
