"""Find the rows of room state that earlier releases have and the newest release lacks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli.state import damaged_groups, rewrite_losses
from synapse_lakehouse.cli.state.damaged_groups import Sources
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries

_HAS_PREDECESSOR: Final = """(
    prev_state_group in (select id from lost_state_groups)
    or exists (
        select 1 from bronze.state_groups as predecessors
        join former_state_groups as own on own.room_id = predecessors.room_id
        where own.id = former.state_group and predecessors.id = former.prev_state_group))
"""
"""Whether the predecessor is restored, or exists in the same room. After a restore of the database, the predecessor's
number may belong to a group of another room."""


@dataclass(frozen=True)
class StateTable:
    """A table of room state. ``key``: columns that identify a row. ``condition``: SQL condition on rows to restore."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    condition: str = "true"

    @property
    def full_name(self) -> str:
        """The table's name in the lake."""
        return f"bronze.{self.name}"

    @property
    def group(self) -> str:
        """The column with the state group."""
        return self.key[0]


STATE_TABLES: Final = (
    StateTable("state_groups", ("id", "room_id", "event_id"), ("id",)),
    StateTable(
        "state_group_edges",
        ("state_group", "prev_state_group"),
        # A group with another predecessor must not get a second one.
        ("state_group",),
        _HAS_PREDECESSOR,
    ),
    StateTable(
        "state_groups_state",
        ("state_group", "room_id", "type", "state_key", "event_id"),
        ("state_group", "type", "state_key"),
    ),
)
"""The tables in the order in which rows are inserted."""

_TABLES: Final = (*(table.full_name for table in STATE_TABLES), damaged_groups.POSITIONS, rewrite_losses.INTERVALS)

_UNDELETABLE: Final = """
create table undeletable as
select id as state_group from present_state_groups
union select state_group from bronze.event_to_state_groups where state_group in (select id from chosen)
union select prev_state_group from bronze.state_group_edges as edges
where prev_state_group in (select id from chosen)
    and exists (select 1 from bronze.state_groups where id = edges.state_group)
"""
"""State groups that exist, or to which an event or an existing group refers. Synapse may delete all others."""

_NEEDED: Final = """
create table needed as
with recursive needed as (
    select state_group from undeletable
    union
    select prev_state_group from former_state_group_edges as edges join needed using (state_group)
    where state_group not in (select state_group from rewritten)
)
select state_group from needed
"""
"""Undeletable groups, and the predecessors that they had in the releases of their right states."""

_CHANGED: Final = """
create table changed as
select state_group, type, state_key, former.event_id as event_before, present.event_id as event_now, former.release
from former_state_groups_state as former
join present_state_groups_state as present using (state_group, type, state_key)
where former.event_id <> present.event_id and state_group not in (select state_group from rewritten)
    and not exists (
        select 1 from former_state_groups_state as same
        where same.state_group = present.state_group and same.type = present.type
            and same.state_key = present.state_key and same.event_id = present.event_id)
union
select state_group, type, state_key, former.event_id, present.event_id, release
from present_state_groups_state as present
join rewritten using (state_group)
left join former_pieces as former using (release, state_group, type, state_key)
where former.event_id is distinct from present.event_id
"""
"""Rows with the wrong event. A damaged index can cause several rows for one piece of state. If the release of the right
state has both rows, it is unknown which row is wrong, so neither row is in ``changed``."""


@dataclass
class LostRows:
    """The rows that the newest release lacks.

    * ``oldest``: the oldest release that was searched.
    * ``releases``: by table and release, the number of lost rows for which this release is the newest that has them.
    * ``changed``: rows with another event than in the right state: state_group, type, state_key, event_before (None if
      the right state lacks the piece), event_now, release (with the right state).
    * ``reused``: number of state groups that had another room or event in an earlier release.
    * ``inheriting``: state groups that now inherit a piece of state that their right state lacks. Inserting a row
      cannot remove an inherited piece.
    """

    newest: Release
    oldest: Release
    releases: dict[str, dict[int, int]] = field(default_factory=dict)
    changed: list[tuple[Any, ...]] = field(default_factory=list)
    reused: int = 0
    inheriting: list[int] = field(default_factory=list)


def list_readable_releases(connection: DuckDBPyConnection, settings: Settings) -> list[Release]:
    """Return the releases whose Iceberg snapshots of room state still exist, the newest first."""
    entries = list_catalog_entries(settings)
    snapshots = {}
    for name in _TABLES:
        if entry := entries.get(name):
            metadata = duckdb_reader.read_metadata(connection, entry.location)
            snapshots[name] = {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", [])}
    return [
        release
        for release in duckdb_reader.list_releases(connection, settings)
        if len(snapshots) == len(_TABLES)
        and all(release.tables.get(name) in present for name, present in snapshots.items())
    ]


def find_lost_rows(
    connection: DuckDBPyConnection, settings: Settings, groups: Iterable[int], rooms: Iterable[str]
) -> LostRows:
    """Compare the state of state groups with earlier releases, and store lost rows in DuckDB's tables ``lost_<table>``.

    :param groups: IDs of state groups to compare.
    :param rooms: IDs of rooms. All of their state groups are compared, too.
    """
    releases = list_readable_releases(connection, settings)
    newest = duckdb_reader.get_release(connection, settings)
    sources = _read_sources(connection, settings, [newest, *releases])
    present = sources[newest.number]
    names = [table.full_name for table in STATE_TABLES]
    duckdb_reader.create_views(connection, settings, newest, [*names, "bronze.event_to_state_groups"])
    damaged_groups.choose_groups(connection, sources, groups, rooms)
    while True:
        damaged = damaged_groups.find_damaged_groups(connection, sources)
        for table in STATE_TABLES:
            _store_rows(connection, table, present, {release: sources[release] for release in damaged})
        if not damaged_groups.add_missing_predecessors(connection, present):
            break
    connection.execute(_UNDELETABLE)
    rewrite_losses.store_rewritten_groups(connection)
    rewrite_losses.store_differing_pieces(connection, sources)
    connection.execute(_NEEDED)
    connection.execute(_CHANGED)
    lost = LostRows(newest, releases[-1] if releases else newest)
    for table in STATE_TABLES:
        _store_lost_rows(connection, table)
        lost.releases[table.name] = _find_newest_releases(connection, table, sources)
    lost.changed = connection.execute("from changed order by state_group, type, state_key").fetchall()
    lost.reused = damaged_groups.count_reused_groups(connection)
    lost.inheriting = rewrite_losses.list_inheriting_groups(connection)
    return lost


def iterate_lost_rows(connection: DuckDBPyConnection, table: StateTable) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that :func:`find_lost_rows` stored, in the order of their key."""
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    result = connection.execute(f"select {columns} from lost_{table.name} order by {key}")  # noqa: S608
    while rows := result.fetchmany(10_000):
        yield from rows


def _read_sources(connection: DuckDBPyConnection, settings: Settings, releases: Iterable[Release]) -> Sources:
    """Return the SELECTs of each release. If several releases have the same content, only the newest one is searched.

    :param releases: the newest first.
    """
    sources: dict[int, dict[str, str]] = {}
    for release in releases:
        tables = dict(duckdb_reader.iterate_view_definitions(connection, settings, release, _TABLES))
        if tables not in sources.values():
            sources[release.number] = tables
    return sources


def _store_rows(connection: DuckDBPyConnection, table: StateTable, present: Mapping[str, str], former: Sources) -> None:
    """Create ``present_<table>`` with the rows of chosen groups in the newest release, and ``former_<table>`` with the
    rows of damaged groups in the releases of their right states. Create an empty ``lost_<table>``.

    :param present: the SELECTs of the newest release, by table.
    :param former: the SELECTs of the releases in ``damaged``.
    """
    columns, group = ", ".join(table.columns), table.group
    connection.execute(
        f"create or replace table present_{table.name} as select {columns} from ({present[table.full_name]})"  # noqa: S608
        f" where {group} in (select id from chosen)"
    )
    for name in ("former", "lost"):
        empty = f"select {columns}, 0::bigint as release from present_{table.name} limit 0"  # noqa: S608
        connection.execute(f"create or replace table {name}_{table.name} as {empty}")
    for release, tables in former.items():
        connection.execute(
            f"insert into former_{table.name} select {columns}, {release} from ({tables[table.full_name]})"  # noqa: S608
            f" where {group} in (select state_group from damaged where release = {release})"
        )


def _store_lost_rows(connection: DuckDBPyConnection, table: StateTable) -> None:
    """Insert into ``lost_<table>`` the rows of needed groups that the newest release lacks.

    The column ``release`` is the release of the group's right state.
    """
    columns = ", ".join(table.columns)
    same_key = " and ".join(f"present.{name} = former.{name}" for name in table.key)
    is_absent = f"not exists (select 1 from present_{table.name} as present where {same_key})"  # noqa: S608
    connection.execute(
        f"insert into lost_{table.name} select {columns}, release from former_{table.name} as former"  # noqa: S608
        f" where {table.group} in (select state_group from needed)"
        f" and {table.group} not in (select state_group from rewritten) and {table.condition} and {is_absent}"
    )
    if table.name == "state_groups_state":
        connection.execute(
            f"insert into lost_{table.name}"  # noqa: S608
            " select state_group, room_id, type, state_key, event_before, release from differing_pieces as former"
            f" where event_before is not null and {is_absent}"
        )


def _find_newest_releases(connection: DuckDBPyConnection, table: StateTable, sources: Sources) -> dict[int, int]:
    """Set ``release`` of each lost row to the newest release that has the row. Return the number of rows by release."""
    same_row = " and ".join(f"former.{name} is not distinct from lost.{name}" for name in table.columns)
    ((oldest,),) = connection.execute(f"select min(release) from lost_{table.name}").fetchall()  # noqa: S608
    for release in sorted(release for release in sources if oldest is not None and release > oldest):
        connection.execute(
            f"update lost_{table.name} as lost set release = {release} where release < {release}"  # noqa: S608
            f" and exists (select 1 from ({sources[release][table.full_name]}) as former where {same_row})"
        )
    counted = connection.execute(f"select release, count(*) from lost_{table.name} group by 1 order by 1 desc")  # noqa: S608
    return dict(counted.fetchall())
