"""Read the state of rooms from Synapse's database, in one snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

import adbc_driver_postgresql.dbapi as postgresql
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from synapse_lakehouse.compressor import saved_progress
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.algorithm.settings import CompressorSettings, Strategy
from synapse_lakehouse.compressor.algorithm.state_arrays import STATE_SCHEMAS, BatchCollector, StateTables
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.compressor.postgres.transaction import GroupRooms
from synapse_lakehouse.compressor.read_cost import ReadCost, measure_disk_bytes, measure_read_cost
from synapse_lakehouse.compressor.saved_progress import SavedProgress
from synapse_lakehouse.compressor.unreferenced_groups import find_unreferenced
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition, read_wal_position

_IDS_AT_ONCE: Final = 50_000
_BATCH_BYTES: Final = 2 << 20

_CLOSURE: Final = """
with recursive needed(id) as (
  (select id from state_groups where room_id = %s union select unnest(%s::bigint[]))
  union select prev_state_group from state_group_edges join needed on state_group = needed.id
) select id from needed order by id
"""
"""The groups of a room, others given, and all that these rest on."""

_UNCOMPRESSED: Final = """
select g.room_id from state_groups_state as s join state_groups as g on g.id = s.state_group {}
group by g.room_id order by count(*) desc, g.room_id limit %s
"""
"""Rooms by the rows of those groups that no compression has seen; nothing indexes the rows by room, so all are read."""

_SEEN: Final = {
    Strategy.LEVELS: ("state_compressor_progress", ""),
    Strategy.BEST: ("lakehouse_compressor_progress", "and p.strategy = 'best'"),
}

_SEEN_UP_TO: Final = "select room_id, last_compressed from {} as p where last_compressed is not null {}"

_IN_USE: Final = """
select id from unnest(%(ids)s::bigint[]) as id where exists (select from event_to_state_groups where state_group = id)
union
select prev_state_group from state_group_edges
where prev_state_group = any(%(ids)s) and not state_group = any(%(ids)s)
"""
"""Groups that an event needs, or a group of another room."""


@dataclass(frozen=True)
class StoredRoom:
    """A room as one snapshot has it: its groups, and all that these and its levels' heads rest on."""

    room_id: str
    contents: StateTables
    saved: SavedProgress
    pending: Int64Array
    """Groups that Synapse is about to delete."""
    unreferenced: Int64Array
    """Groups that no event and no group in use needs."""
    newest: int
    """Id of the newest group of the room."""

    @property
    def ids(self) -> Int64Array:
        """Its groups."""
        of_room = pc.equal(self.contents.groups["room_id"].cast(pa.string()), self.room_id)
        return cast(Int64Array, self.contents.groups["id"].filter(of_room).to_numpy())

    @cached_property
    def known(self) -> GroupRooms:
        """What ``state_groups`` has of it."""
        return GroupRooms(self.contents, self.room_id)

    @property
    def untouchable(self) -> Int64Array:
        """Groups that Synapse is about to delete or to store whole: those pending, and what hangs on them."""
        edges = self.contents.edges
        hung = edges["state_group"].to_numpy()[np.isin(edges["prev_state_group"].to_numpy(), self.pending)]
        return np.union1d(self.pending, hung)


class RoomReader:
    """Reads rooms over two connections that share a snapshot."""

    def __init__(self, connection: psycopg.Connection[Any], arrow: postgresql.Connection) -> None:
        self._connection, self._arrow = connection, arrow

    def rooms(self, settings: CompressorSettings, *, all_state: bool = False, every: bool = False) -> list[str]:
        """The ``number_of_rooms`` rooms with the most uncompressed state, or with the most of all; the most first.

        :param every: all rooms that have some.
        """
        table, condition = _SEEN[settings.strategy]
        seen = ""
        if not all_state and self._has(table):
            seen = f"left join {table} as p on p.room_id = g.room_id {condition}"
            seen += " where p.last_compressed is null or g.id > p.last_compressed"
        query = _UNCOMPRESSED.format(seen)
        limit = None if every else settings.number_of_rooms
        return [room for (room,) in self._connection.execute(query.encode(), [limit])]

    def require(self, rooms: Sequence[str]) -> None:
        """Refuse rooms that are not there.

        :raises CompressorError: naming them.
        """
        found = self._connection.execute(
            "select wanted from unnest(%s::text[]) as wanted"
            " where not exists (select from state_groups where room_id = wanted)",
            [list(rooms)],
        ).fetchall()
        if found:
            missing = " or ".join(room for (room,) in found)
            raise CompressorError(f"There is no room {missing} with state in this database.")

    def room(self, room_id: str) -> StoredRoom:
        """One room.

        :raises RoomSkippedError: when there is no such room.
        """
        known = saved_progress.read_progress(self._connection, room_id)
        heads = [one.head for one in known.progress.levels if one.head is not None] if known.progress else []
        contents = self.contents(room_id, heads)
        of_room = contents.groups.filter(pc.field("room_id").cast(pa.string()) == room_id)["id"].to_numpy()
        if not len(of_room):
            raise RoomSkippedError("it is gone.")
        pending = np.empty(0, np.int64)
        if self._has("state_groups_pending_deletion"):
            pending = self._ids(
                "select state_group from state_groups_pending_deletion where state_group = any(%(ids)s)",
                {"ids": of_room.tolist()},
            )
        unreferenced = self._unreferenced(of_room, contents)
        return StoredRoom(room_id, contents, known, pending, unreferenced, int(of_room.max()))

    def saved(self, room_id: str) -> SavedProgress:
        """How far a room is compressed."""
        return saved_progress.read_progress(self._connection, room_id)

    def seen(self, strategy: Strategy) -> dict[str, int]:
        """Up to which group rooms were compressed before, for those that were."""
        table, condition = _SEEN[strategy]
        if not self._has(table):
            return {}
        query = _SEEN_UP_TO.format(table, condition)
        return dict(self._connection.execute(query.encode()).fetchall())

    def contents(self, room_id: str, heads: Sequence[int] = ()) -> StateTables:
        """The groups of a room, and all that these and ``heads`` rest on."""
        ids = self._ids(_CLOSURE, [room_id, list(heads)])
        return StateTables(*(self._fetched(schema, table, ids) for table, schema in STATE_SCHEMAS.items()))

    def read_cost(self, groups: Sequence[int]) -> ReadCost | None:
        """What reading the states of ``groups`` costs now."""
        return measure_read_cost(self._connection, groups)

    def lineage(self) -> WalPosition:
        """Which history of which database this is."""
        return read_wal_position(self._connection)

    def on_disk(self) -> int:
        """Bytes that the state of all rooms takes on the database's disk."""
        return measure_disk_bytes(self._connection)

    def _unreferenced(self, of_room: Int64Array, contents: StateTables) -> Int64Array:
        if not self._has("event_to_state_groups"):
            return np.empty(0, np.int64)
        return find_unreferenced(of_room, self._ids(_IN_USE, {"ids": of_room.tolist()}), contents.edges)

    def _has(self, table: str) -> bool:
        return self._connection.execute("select to_regclass(%s) is not null", [table]).fetchone() == (True,)

    def _ids(self, query: str, parameters: Sequence[Any] | Mapping[str, Any]) -> Int64Array:
        found = self._connection.execute(query.encode(), parameters).fetchall()
        return np.fromiter((one for (one,) in found), np.int64, len(found))

    def _fetched(self, schema: pa.Schema, table: str, ids: Int64Array) -> pa.Table:
        """The columns of ``schema``, texts as dictionaries where it says so; the first column is one of ``ids``."""
        query = sql.SQL("select {} from {} where {} = any({})")
        columns = sql.SQL(", ").join(map(sql.Identifier, schema.names))
        fetched = BatchCollector(schema)
        with self._arrow.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            for start in range(0, len(ids), _IDS_AT_ONCE):
                wanted = sql.Literal(ids[start : start + _IDS_AT_ONCE].tolist())
                piece = query.format(columns, sql.Identifier(table), sql.Identifier(schema.names[0]), wanted)
                cursor.execute(piece.as_string(self._connection))
                for batch in cursor.fetch_record_batch():
                    fetched.add(pa.Table.from_batches([batch]))
        table_of_all = fetched.table()
        pa.default_memory_pool().release_unused()
        return table_of_all
