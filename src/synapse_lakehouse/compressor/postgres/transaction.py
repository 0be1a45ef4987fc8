"""One transaction that stores a few groups otherwise, beside a Synapse that goes on working.

Synapse deletes a group only after it stood among those pending deletion for minutes, and locks its row for that. Rows
of all groups that are written or hung on, before or after, are therefore locked against deletion, in the order of
their ids, and then seen again: whatever is gone, about to go or stored otherwise than planned is left alone.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from synapse_lakehouse.compressor.algorithm.row_changes import RowChanges
from synapse_lakehouse.compressor.algorithm.state_arrays import StateTables
from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.numba_jit import BoolArray, Int64Array
from synapse_lakehouse.postgres.connection import Connection

_LOCK: Final = "SELECT id FROM state_groups WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"
_PENDING: Final = "SELECT state_group FROM state_groups_pending_deletion WHERE state_group = ANY(%s)"
_EDGES: Final = "SELECT state_group, prev_state_group FROM state_group_edges WHERE state_group = ANY(%s)"
_DELETE: Final = (
    "DELETE FROM state_groups_state WHERE state_group = ANY(%s)",
    "DELETE FROM state_group_edges WHERE state_group = ANY(%s)",
)
_HANG: Final = (
    "INSERT INTO state_group_edges (state_group, prev_state_group) SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
)
_COPY: Final = (
    "COPY state_groups_state (state_group, type, state_key, event_id, room_id) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
)
_QUOTED: Final = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")


class GroupRooms:
    """What ``state_groups`` had when the plan was made."""

    def __init__(self, contents: StateTables, room_id: str) -> None:
        """``room_id``: the room that is compressed."""
        self._rooms = dict(zip(contents.groups["id"].to_pylist(), contents.groups["room_id"].to_pylist(), strict=True))
        self._room_id = room_id

    def has(self, groups: Int64Array) -> BoolArray:
        """Which of ``groups`` were there."""
        return np.array([group in self._rooms for group in groups.tolist()], bool)

    def room(self, group: int) -> str:
        """The room of a group. One that is gone is given to the room that is compressed, as the reference does."""
        return str(self._rooms.get(group, self._room_id))


def encode_rows(changes: RowChanges, places: Int64Array, known: GroupRooms) -> memoryview:
    """The new rows of the changes at ``places``, as COPY takes them. To be made before anything is locked for them."""
    rows = changes.rows(places)
    groups, numbers = np.unique(rows["state_group"].to_numpy(), return_inverse=True)
    rooms = pa.array([known.room(group) for group in groups.tolist()], pa.string()).take(pa.array(numbers))
    text = pa.BufferOutputStream()
    pa_csv.write_csv(rows.append_column("room_id", rooms), text, _QUOTED)
    return memoryview(text.getvalue())


def rewrite_groups(
    connection: Connection, changes: RowChanges, start: int, end: int, known: GroupRooms, new_rows: memoryview
) -> Int64Array:
    """Store the changes from ``start`` up to ``end`` in the transaction that is open.

    :param new_rows: :func:`encode_rows` of all of them.
    :returns: ids of the groups that were left alone.
    """
    possible = _possible(connection, changes, start, end, known)
    places = start + np.flatnonzero(possible)
    ids, new = changes.ids[places], changes.new[places]
    for statement in _DELETE:
        connection.execute(statement.encode(), [ids.tolist()])
    hung = new != NONE
    connection.execute(_HANG.encode(), [ids[hung].tolist(), new[hung].tolist()])
    with connection.cursor() as cursor, cursor.copy(_COPY.encode()) as copy:
        copy.write(new_rows if possible.all() else encode_rows(changes, places, known))
    return changes.ids[start:end][~possible]


def _possible(connection: Connection, changes: RowChanges, start: int, end: int, known: GroupRooms) -> BoolArray:
    touched = changes.touched_groups(start, end)
    there = _ids(connection.execute(_LOCK.encode(), [touched.tolist()]))
    # What was gone already when the plan was made is gone for good.
    unsafe = touched[np.isin(touched, there) != known.has(touched)]
    unsafe = np.concatenate([unsafe, _ids(connection.execute(_PENDING.encode(), [touched.tolist()]))])
    ids, new, hung = changes.ids[start:end], changes.new[start:end], changes.edges_of(start, end)
    found = set(connection.execute(_EDGES.encode(), [ids.tolist()]))
    elsewhere = np.array([group for group, _ in found ^ set(map(tuple, hung.tolist()))], np.int64)
    left = np.concatenate([unsafe, elsewhere, hung[np.isin(hung[:, 1], unsafe), 0]])
    return ~(np.isin(ids, left) | np.isin(new, unsafe))


def _ids(cursor: Any) -> Int64Array:
    return np.array([one for (one,) in cursor], np.int64)


@dataclass
class TransactionSize:
    """How much to write in one transaction, so that it holds its locks for a part of a second only."""

    seconds: float = 0.03
    work: int = 300
    longest: float = 0.0
    """Seconds that the longest transaction held its locks, at most."""

    def took(self, seconds: float, work: int) -> None:
        """Learn from a transaction."""
        self.longest = max(self.longest, seconds)
        possible = work * self.seconds / max(seconds, 1e-4)
        self.work = int(min(max(possible, self.work / 4, 50), self.work * 2, 20_000))

    def record_conflict(self, seconds: float) -> None:
        """Somebody else needs what we lock, or has what we need: given up after ``seconds``."""
        self.longest = max(self.longest, seconds)
        self.work = max(self.work // 4, 50)
