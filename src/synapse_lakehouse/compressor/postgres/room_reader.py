"""Read the state of rooms from Synapse's database, in one PostgreSQL snapshot."""

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

from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.encode_tables import STATE_SCHEMAS, BatchCollector, StateTables
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.compressor.postgres import progress_store
from synapse_lakehouse.compressor.postgres.progress_store import SavedProgress
from synapse_lakehouse.compressor.postgres.transaction import GroupRooms
from synapse_lakehouse.compressor.read_cost import ReadCost, measure_disk_bytes, measure_read_cost
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.compressor.unreferenced_groups import find_unreferenced
from synapse_lakehouse.numba_jit import Int64Array
from synapse_lakehouse.postgres.connection import has_table
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition, read_wal_position

_IDS_PER_QUERY: Final = 50_000
_BATCH_BYTES: Final = 2 << 20

_CLOSURE: Final = """
with recursive needed(id) as (
  (select id from state_groups where room_id = %s union select unnest(%s::bigint[]))
  union select prev_state_group from state_group_edges join needed on state_group = needed.id
) select id from needed order by id
"""
"""Selects the groups of a room, the given groups, and the chains of both."""

_UNCOMPRESSED: Final = """
select g.room_id from state_groups_state as s join state_groups as g on g.id = s.state_group {}
group by g.room_id order by count(*) desc, g.room_id limit %s
"""
"""Rooms with the most rows in uncompressed groups. No index contains the room, so the query reads the whole table."""

_PROGRESS_TABLES: Final = {
    Strategy.LEVELS: ("state_compressor_progress", ""),
    Strategy.BEST: ("lakehouse_compressor_progress", "and p.strategy = 'best'"),
}

_LAST_COMPRESSED: Final = "select room_id, last_compressed from {} as p where last_compressed is not null {}"

_OF_EVENTS: Final = """
select id from unnest(%s::bigint[]) as id where exists (select from event_to_state_groups where state_group = id)
"""
"""Groups that an event references."""

_OF_OTHER_ROOMS: Final = """
select distinct prev_state_group from state_group_edges
where prev_state_group = any(%(ids)s) and not state_group = any(%(ids)s)
"""
"""Groups that a group of another room references."""


@dataclass(frozen=True)
class StoredRoom:
    """A room in one PostgreSQL snapshot: its groups, the heads of its levels, and the chains of both."""

    room_id: str
    contents: StateTables
    saved: SavedProgress
    pending: Int64Array
    """Groups that are pending deletion."""
    unreferenced: Int64Array
    """Groups that neither an event nor the chain of a referenced group needs."""
    newest: int
    """ID of the newest group of the room."""

    @property
    def ids(self) -> Int64Array:
        """IDs of the groups of the room."""
        is_in_room = pc.equal(self.contents.groups["room_id"].cast(pa.string()), self.room_id)
        return cast(Int64Array, self.contents.groups["id"].filter(is_in_room).to_numpy())

    @cached_property
    def group_rooms(self) -> GroupRooms:
        """The groups of ``contents`` that exist, with their rooms."""
        return GroupRooms(self.contents, self.room_id)

    @property
    def untouchable(self) -> Int64Array:
        """Groups pending deletion, and their deltas. Synapse deletes the groups, and rewrites the deltas."""
        edges = self.contents.edges
        deltas = edges["state_group"].to_numpy()[np.isin(edges["prev_state_group"].to_numpy(), self.pending)]
        return np.union1d(self.pending, deltas)


class RoomReader:
    """Reads rooms over two connections that share a PostgreSQL snapshot.

    :param events: connection to the database with the events, which may be another database than that of the state.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], arrow: postgresql.Connection, events: psycopg.Connection[Any]
    ) -> None:
        self._connection, self._arrow, self._events = connection, arrow, events

    def select_rooms(self, settings: CompressorSettings, *, all_state: bool = False, every: bool = False) -> list[str]:
        """Return the ``number_of_rooms`` rooms with the most uncompressed state, largest first.

        :param all_state: rank rooms by all their state.
        :param every: return all rooms, not only ``number_of_rooms``.
        """
        table, condition = _PROGRESS_TABLES[settings.strategy]
        join = ""
        if not all_state and has_table(self._connection, table):
            join = f"left join {table} as p on p.room_id = g.room_id {condition}"
            join += " where p.last_compressed is null or g.id > p.last_compressed"
        query = _UNCOMPRESSED.format(join)
        limit = None if every else settings.number_of_rooms
        return [room for (room,) in self._connection.execute(query.encode(), [limit])]

    def require_rooms(self, rooms: Sequence[str]) -> None:
        """Require that all rooms exist.

        :raises CompressorError: when rooms are missing; the message names them.
        """
        rows = self._connection.execute(
            "select wanted from unnest(%s::text[]) as wanted"
            " where not exists (select from state_groups where room_id = wanted)",
            [list(rooms)],
        ).fetchall()
        if rows:
            missing = " or ".join(room for (room,) in rows)
            raise CompressorError(f"This database contains no room {missing} with state.")

    def read_room(self, room_id: str) -> StoredRoom:
        """Read a room.

        :raises RoomSkippedError: when the room does not exist.
        """
        saved = progress_store.read_progress(self._connection, room_id)
        levels = saved.progress.levels if saved.progress else ()
        heads = [level.head for level in levels if level.head is not None]
        contents = self.read_tables(room_id, heads)
        group_ids = contents.groups.filter(pc.field("room_id").cast(pa.string()) == room_id)["id"].to_numpy()
        if not len(group_ids):
            raise RoomSkippedError("The room no longer exists.")
        pending = np.empty(0, np.int64)
        if has_table(self._connection, "state_groups_pending_deletion"):
            pending = self._ids(
                "select state_group from state_groups_pending_deletion where state_group = any(%(ids)s)",
                {"ids": group_ids.tolist()},
            )
        unreferenced = self._find_unreferenced(group_ids, contents)
        return StoredRoom(room_id, contents, saved, pending, unreferenced, int(group_ids.max()))

    def read_progress(self, room_id: str) -> SavedProgress:
        """Read the saved progress of a room."""
        return progress_store.read_progress(self._connection, room_id)

    def read_last_compressed(self, strategy: Strategy) -> dict[str, int]:
        """Return the last compressed group by room ID."""
        table, condition = _PROGRESS_TABLES[strategy]
        if not has_table(self._connection, table):
            return {}
        query = _LAST_COMPRESSED.format(table, condition)
        return dict(self._connection.execute(query.encode()).fetchall())

    def read_tables(self, room_id: str, heads: Sequence[int] = ()) -> StateTables:
        """Read the groups of a room, the groups ``heads``, and the chains of both."""
        ids = self._ids(_CLOSURE, [room_id, list(heads)])
        return StateTables(*(self._fetch(schema, table, ids) for table, schema in STATE_SCHEMAS.items()))

    def measure_read_cost(self, groups: Sequence[int]) -> ReadCost | None:
        """Measure the cost of reading the states of ``groups``."""
        return measure_read_cost(self._connection, groups)

    def read_wal_position(self) -> WalPosition:
        """Read the WAL position of the database."""
        return read_wal_position(self._connection)

    def measure_disk_bytes(self) -> int:
        """Return the bytes of the state of all rooms on disk."""
        return measure_disk_bytes(self._connection)

    def find_groups_of_events(self, groups: Sequence[int]) -> list[int]:
        """Return those of ``groups`` that an event references."""
        return [group for (group,) in self._events.execute(_OF_EVENTS, [list(groups)])]

    def _find_unreferenced(self, group_ids: Int64Array, contents: StateTables) -> Int64Array:
        if not has_table(self._events, "event_to_state_groups"):
            return np.empty(0, np.int64)
        of_events = self.find_groups_of_events(group_ids.tolist())
        of_other_rooms = self._ids(_OF_OTHER_ROOMS, {"ids": group_ids.tolist()})
        return find_unreferenced(group_ids, np.union1d(of_other_rooms, np.array(of_events, np.int64)), contents.edges)

    def _ids(self, query: str, parameters: Sequence[Any] | Mapping[str, Any]) -> Int64Array:
        rows = self._connection.execute(query.encode(), parameters).fetchall()
        return np.fromiter((group for (group,) in rows), np.int64, len(rows))

    def _fetch(self, schema: pa.Schema, table: str, ids: Int64Array) -> pa.Table:
        """Read the columns of ``schema`` from ``table`` where the first column is one of ``ids``."""
        query = sql.SQL("select {} from {} where {} = any({})")
        columns = sql.SQL(", ").join(map(sql.Identifier, schema.names))
        collector = BatchCollector(schema)
        with self._arrow.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            for start in range(0, len(ids), _IDS_PER_QUERY):
                values = sql.Literal(ids[start : start + _IDS_PER_QUERY].tolist())
                statement = query.format(columns, sql.Identifier(table), sql.Identifier(schema.names[0]), values)
                cursor.execute(statement.as_string(self._connection))
                for batch in cursor.fetch_record_batch():
                    collector.add(pa.Table.from_batches([batch]))
        result = collector.table()
        pa.default_memory_pool().release_unused()
        return result
