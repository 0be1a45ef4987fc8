"""Plan the compression of rooms from a release of the lake; one Spark task per room."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, NotNull, Or
from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.compressor.algorithm.encode_tables import STATE_SCHEMAS, BatchCollector, StateTables
from synapse_lakehouse.compressor.algorithm.errors import CompressorError, InvalidStateGroupsError
from synapse_lakehouse.compressor.algorithm.in_memory_groups import add_chain_groups
from synapse_lakehouse.compressor.algorithm.plan_room import RoomPlan
from synapse_lakehouse.compressor.algorithm.state_groups import NONE
from synapse_lakehouse.compressor.compress_room import plan_room
from synapse_lakehouse.compressor.errors import RoomSkippedError
from synapse_lakehouse.compressor.postgres.progress_store import SavedProgress
from synapse_lakehouse.compressor.postgres.room_reader import StoredRoom
from synapse_lakehouse.compressor.settings import CompressorSettings
from synapse_lakehouse.compressor.unreferenced_groups import find_unreferenced
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_PLAN_TABLE

_TABLES: Final = (*STATE_SCHEMAS, "event_to_state_groups", "state_groups_pending_deletion")

_UNCOMPRESSED_ROOMS: Final = """
select g.room_id from state_groups_state as s join state_groups as g on g.id = s.state_group
left join seen on seen.room_id = g.room_id where seen.last_group is null or g.id > seen.last_group
group by g.room_id order by count(*) desc, g.room_id limit {}
"""
"""Rooms with the most rows in groups that were neither compressed nor planned without savings."""

_NAMED_ROOMS: Final = """
select named.room_id, count(g.id) as groups from named left join state_groups as g on g.room_id = named.room_id
group by named.room_id
"""

_ROOM_LINKS: Final = """
select child.room_id, prev.room_id as prev_room_id, e.prev_state_group
from state_group_edges as e left join state_groups as child on child.id = e.state_group
left join state_groups as prev on prev.id = e.prev_state_group where not child.room_id <=> prev.room_id
"""
"""Edges between two rooms; the room of a deleted group is NULL."""

_CHAINS: Final = """
select r.number, g.id, null as prev from state_groups as g join rooms as r on r.room_id = g.room_id
union all
select r.number, e.state_group, e.prev_state_group
from state_group_edges as e left join state_groups as g on g.id = e.state_group
join reached as r on r.room_id <=> g.room_id
"""
"""The groups of each room, and the edges of all rooms that its chains reach."""

_PARTS: Final = (
    """
select n.number, 0 as part, g.id, null as prev, g.room_id, null as type, null as state_key, null as event_id,
       used.id is not null as is_used, pending.id is not null as is_pending
from needed as n join state_groups as g on g.id = n.id
left join (select state_group as id from event_to_state_groups union select prev_state_group from links) as used
       on used.id = g.id
left join (select distinct state_group as id from state_groups_pending_deletion) as pending on pending.id = g.id
""",
    """
select n.number, 1, n.id, e.prev_state_group, null, null, null, null, null, null
from needed as n join state_group_edges as e on e.state_group = n.id
""",
    """
select n.number, 2, n.id, null, null, s.type, s.state_key, s.event_id, null, null
from needed as n join state_groups_state as s on s.state_group = n.id
""",
)
"""All rows that each room needs, as one relation: the groups (part 0), edges (1) and state (2) of its chains."""

_GROUPS: Final = (
    STATE_SCHEMAS["state_groups"].append(pa.field("is_used", pa.bool_())).append(pa.field("is_pending", pa.bool_()))
)
_COLUMNS: Final = (
    (("id", "room_id", "is_used", "is_pending"), _GROUPS),
    (("id", "prev"), STATE_SCHEMAS["state_group_edges"]),
    (("id", "type", "state_key", "event_id"), STATE_SCHEMAS["state_groups_state"]),
)
_PLAN_COLUMNS: Final = tuple(field.name for field in fields(RoomPlan) if field.name != "room_id")
_PLANNED: Final = pa.schema(
    [
        ("room_id", pa.string()),
        ("newest_group", pa.int64()),
        *((name, pa.int64()) for name in _PLAN_COLUMNS),
        ("skipped", pa.string()),
    ]
)


def find_rooms_without_savings(catalog: Catalog, settings: CompressorSettings) -> dict[str, int]:
    """Return the last group of each room for which an earlier plan with the same layout saved nothing.

    These rooms count as compressed. Otherwise each plan would contain the largest of these rooms again.
    """
    table = catalog.load_table(COMPRESSION_PLAN_TABLE)
    same_layout = (EqualTo(term=name, value=value) for name, value in settings.layout_settings().items())
    without_savings = Or(EqualTo(term="groups_to_rewrite", value=0), NotNull(term="skipped"))
    condition = reduce(And, same_layout, And(without_savings, NotNull(term="newest_group")))
    rows = table.scan(row_filter=condition, selected_fields=("room_id", "newest_group")).to_arrow()
    newest = rows.group_by("room_id").aggregate([("newest_group", "max")])
    return dict(zip(newest["room_id"].to_pylist(), newest["newest_group_max"].to_pylist(), strict=True))


@dataclass(frozen=True)
class CompressionPlanner:
    """Plans the compression of a release's rooms according to ``settings``."""

    spark: SparkSession
    release: Release
    settings: CompressorSettings

    def __post_init__(self) -> None:
        for name in _TABLES:
            self._table(name).createOrReplaceTempView(name)
        self.spark.sql(_ROOM_LINKS).createOrReplaceTempView("links")

    def select_rooms(self, newest_groups: Mapping[str, int]) -> list[str]:
        """Return the rooms that the settings name, or the rooms with the most uncompressed state, largest first.

        :param newest_groups: by room, the ID of its newest group when it was compressed, or planned without savings.
        :raises CompressorError: when the release does not contain a named room.
        """
        if room_ids := self.settings.rooms:
            self._view([(room,) for room in room_ids], "room_id string", "named")
            groups = {row.room_id: row.groups for row in self.spark.sql(_NAMED_ROOMS).collect()}
            if unknown := [room for room in room_ids if not groups[room]]:
                missing = " or ".join(dict.fromkeys(unknown))
                raise CompressorError(f"Release {self.release.number} contains no room {missing} with state.")
            return list(dict.fromkeys(room_ids))
        self._view(list(newest_groups.items()), "room_id string, last_group bigint", "seen")
        return [
            row.room_id for row in self.spark.sql(_UNCOMPRESSED_ROOMS.format(self.settings.number_of_rooms)).collect()
        ]

    def plan_rooms(self, saved: Mapping[str, SavedProgress]) -> list[dict[str, Any]]:
        """Plan each room in ``saved``, which contains the saved progress by room ID.

        Each returned row has the fields of ``RoomPlan``, ``newest_group`` (the ID of the newest planned group) and
        ``skipped``. Each room is one Spark task. The task needs as much memory as ``lakehouse compress plan`` for the
        room.
        """
        if not saved:
            return []
        rooms = list(saved)
        self._needed_groups(rooms, saved).persist().createOrReplaceTempView("needed")
        parts = self.spark.sql(" union all ".join(_PARTS))
        plan = partial(_plan_in_task, rooms=rooms, settings=self.settings, saved=dict(saved))
        schema = ", ".join(f"{field.name} {'bigint' if field.type == pa.int64() else 'string'}" for field in _PLANNED)
        plans = parts.repartitionById(len(rooms), "number").mapInArrow(plan, schema).collect()
        return [row.asDict() for row in plans]

    def _needed_groups(self, rooms: Sequence[str], saved: Mapping[str, SavedProgress]) -> DataFrame:
        """Return the groups that each room needs: its own groups, the heads of its levels, and the chains of both.

        Columns: ``number`` (of the room), ``id`` (of the group).
        """
        prev_rooms: dict[str | None, set[str | None]] = {}
        for row in self.spark.sql("select distinct room_id, prev_room_id from links").collect():
            prev_rooms.setdefault(row.room_id, set()).add(row.prev_room_id)
        reached = [(number, room) for number, name in enumerate(rooms) for room in _reachable_rooms(name, prev_rooms)]
        self._view(reached, "number int, room_id string", "reached")
        self._view(list(enumerate(rooms)), "number int, room_id string", "rooms")
        levels = [progress.levels if (progress := saved[room].progress) else () for room in rooms]
        heads = [[level.head for level in of_room if level.head is not None] for of_room in levels]
        chains = self.spark.sql(_CHAINS).repartitionById(len(rooms), "number")
        return chains.mapInArrow(partial(_find_chains_in_task, heads=heads), "number int, id bigint")

    def _table(self, name: str) -> DataFrame:
        snapshot_id = self.release.tables.get(f"bronze.{name}")
        # A table that never had a row has no Iceberg snapshot.
        if snapshot_id is None:
            return self.spark.table(f"bronze.{name}").where("false")
        return self.spark.read.option("versionAsOf", snapshot_id).table(f"bronze.{name}")

    def _view(self, rows: list[Any], columns: str, name: str) -> None:
        self.spark.createDataFrame(rows, columns).createOrReplaceTempView(name)


def _reachable_rooms(room: str, prev_rooms: Mapping[str | None, Collection[str | None]]) -> set[str | None]:
    """Return the room, and all rooms that its chains can reach; None for deleted groups."""
    reached: set[str | None] = {room}
    added = reached
    while added:
        added = {prev for reached_room in added for prev in prev_rooms.get(reached_room, ())} - reached
        reached |= added
    return reached


def _find_chains_in_task(batches: Iterable[pa.RecordBatch], heads: Sequence[Sequence[int]]) -> Iterator[pa.RecordBatch]:
    """Yield the groups of one room, the heads of its levels, and the chains of both, from rows of ``_CHAINS``."""
    rows = [batch for batch in batches if batch.num_rows]
    if not rows:
        return
    table = pa.Table.from_batches(rows)
    number = table["number"][0].as_py()
    edges, groups = table.filter(pc.is_valid(table["prev"])), table.filter(pc.is_null(table["prev"]))
    children, prevs = edges["id"].to_numpy(), edges["prev"].to_numpy()
    ids = np.unique(np.concatenate([groups["id"].to_numpy(), children, prevs]))
    prev = np.full(len(ids), NONE)
    prev[np.searchsorted(ids, children)] = np.searchsorted(ids, prevs)
    chosen = np.union1d(groups["id"].to_numpy(), np.intersect1d(np.array(heads[number], np.int64), ids))
    needed = ids[add_chain_groups(np.searchsorted(ids, chosen), prev, np.zeros(len(ids), bool))]
    yield pa.record_batch({"number": pa.array(np.full(len(needed), number), pa.int32()), "id": needed})


def _plan_in_task(
    batches: Iterable[pa.RecordBatch],
    rooms: Sequence[str],
    settings: CompressorSettings,
    saved: Mapping[str, SavedProgress],
) -> Iterator[pa.RecordBatch]:
    """Plan one room from its rows of ``_PARTS``."""
    parts = [BatchCollector(schema) for _, schema in _COLUMNS]
    room_id = ""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        for part, (collector, (columns, schema)) in enumerate(zip(parts, _COLUMNS, strict=True)):
            part_rows = rows.filter(pc.equal(rows["part"], part))
            collector.add(part_rows.select(columns).rename_columns(schema.names))
        room_id = rooms[batch.column("number")[0].as_py()] if batch.num_rows else room_id
    groups, edges, state = (collector.table() for collector in parts)
    room_groups = groups.filter(pc.equal(groups["room_id"].cast(pa.string()), room_id))
    ids = room_groups["id"].to_numpy()
    if not len(ids):
        return
    in_use, pending = (room_groups.filter(room_groups[name])["id"].to_numpy() for name in ("is_used", "is_pending"))
    contents = StateTables(groups.select(STATE_SCHEMAS["state_groups"].names), edges, state)
    unreferenced = find_unreferenced(ids, in_use, edges)
    room = StoredRoom(room_id, contents, saved[room_id], pending, unreferenced, int(ids.max()))
    try:
        row: dict[str, Any] = asdict(plan_room(room, settings)[1])
    except (InvalidStateGroupsError, RoomSkippedError) as error:
        row = {"room_id": room_id, "skipped": str(error)}
    yield from pa.Table.from_pylist([row | {"newest_group": room.newest}], schema=_PLANNED).to_batches()
