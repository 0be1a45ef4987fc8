"""Find rows of room state that the newest release lacks, in earlier releases."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.cli.state import rewrite_losses
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import quote_literal


@dataclass(frozen=True)
class StateTable:
    """A table of room state: its columns, those that identify a row, and a condition on rows to restore."""

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
        ("state_group", "prev_state_group"),
        "prev_state_group in (select id from bronze.state_groups union select id from lost_state_groups)",
    ),
    StateTable(
        "state_groups_state",
        ("state_group", "room_id", "type", "state_key", "event_id"),
        ("state_group", "type", "state_key"),
    ),
)
"""The tables in the order in which rows are inserted."""

_NEEDED: Final = """
create or replace table needed as
select id as state_group from now_state_groups
union select state_group from bronze.event_to_state_groups where state_group in (select id from chosen)
union select prev_state_group from bronze.state_group_edges where prev_state_group in (select id from chosen)
"""
"""State groups that exist, or to which an event or another group refers. Synapse may delete all others."""

_CHANGED: Final = """
insert into changed
select * from (
    select state_group, type, state_key, former.event_id as event_before, pieces.event_id as event_now
    from then_state_groups_state as former
    join now_state_groups_state as pieces using (state_group, type, state_key)
    where former.event_id <> pieces.event_id and state_group not in (select state_group from rewritten)
    union all
    select state_group, type, state_key, event_before, event_now from differing_pieces where is_own
) as found
where not exists (
    select 1 from changed where changed.state_group = found.state_group
    and changed.type = found.type and changed.state_key = found.state_key)
"""


@dataclass
class LostRows:
    """What the newest release lacks.

    * ``releases``: by table and number of the release, the rows that were found there and in no later release.
    * ``oldest``: the oldest release that was searched.
    * ``changed``: state group, type, state key, earlier event and present event of rows whose event changed. If the
      state lacked the piece, the earlier event is None.
    """

    newest: Release
    oldest: Release
    releases: dict[str, dict[int, int]] = field(default_factory=dict)
    changed: list[tuple[Any, ...]] = field(default_factory=list)


def list_readable_releases(connection: DuckDBPyConnection, settings: Settings) -> list[Release]:
    """Return the releases whose tables of room state were not expired yet, the newest first."""
    entries = list_catalog_entries(settings)
    snapshots = {}
    names = [*(table.full_name for table in STATE_TABLES), *rewrite_losses.RESOLVED_TABLES]
    for name in names:
        if entry := entries.get(name):
            metadata = duckdb_reader.read_metadata(connection, entry.location)
            snapshots[name] = {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", [])}
    return [
        release
        for release in duckdb_reader.list_releases(connection, settings)
        if len(snapshots) == len(names)
        and all(release.tables.get(name) in present for name, present in snapshots.items())
    ]


def find_lost_rows(
    connection: DuckDBPyConnection, settings: Settings, groups: Sequence[int], room: str | None
) -> LostRows:
    """Search the releases from the newest to the oldest, and store the rows in DuckDB's tables ``lost_<table>``.

    :param groups: state groups. ``room``: a room, all of whose state groups are searched.
    """
    releases = list_readable_releases(connection, settings)
    newest = duckdb_reader.get_release(connection, settings)
    names = [table.full_name for table in STATE_TABLES]
    duckdb_reader.create_views(connection, settings, newest, [*names, "bronze.event_to_state_groups"])
    _choose_groups(connection, settings, [newest, *releases], groups, room)
    for table in STATE_TABLES:
        _store(connection, f"now_{table.name}", f"from bronze.{table.name}", table)
        empty = f"select *, 0 as release from now_{table.name} limit 0"  # noqa: S608
        connection.execute(f"create table lost_{table.name} as {empty}")
    connection.execute(_NEEDED)
    connection.execute(
        "create table changed (state_group bigint, type text, state_key text, event_before text, event_now text)"
    )
    lost = LostRows(newest, releases[-1] if releases else newest)
    searched = [newest.tables.get(name) for name in names]
    for release in releases:
        snapshots = [release.tables.get(name) for name in names]
        if release.number < newest.number and snapshots != searched:
            searched = snapshots
            _search(connection, settings, release, newest)
    for table in STATE_TABLES:
        counted = connection.execute(f"select release, count(*) from lost_{table.name} group by 1 order by 1 desc")  # noqa: S608
        lost.releases[table.name] = dict(counted.fetchall())
    lost.changed = connection.execute("from changed order by state_group, type, state_key").fetchall()
    return lost


def iterate_lost_rows(connection: DuckDBPyConnection, table: StateTable) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that :func:`find_lost_rows` stored, in the order of their key."""
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    result = connection.execute(f"select {columns} from lost_{table.name} order by {key}")  # noqa: S608
    while rows := result.fetchmany(10_000):
        yield from rows


def _choose_groups(
    connection: DuckDBPyConnection,
    settings: Settings,
    releases: Sequence[Release],
    groups: Sequence[int],
    room: str | None,
) -> None:
    connection.execute("create table chosen (id bigint primary key)")
    for group in groups:
        connection.execute(f"insert or ignore into chosen values ({int(group)})")  # noqa: S608
    if room is not None:
        for source in {_source(connection, settings, release, STATE_TABLES[0].full_name) for release in releases}:
            connection.execute(
                f"insert or ignore into chosen select id from ({source}) where room_id = {quote_literal(room)}"  # noqa: S608
            )


def _search(connection: DuckDBPyConnection, settings: Settings, release: Release, newest: Release) -> None:
    """Store rows of ``release`` that neither the newest release nor a later one has."""
    for table in STATE_TABLES:
        _store(connection, f"then_{table.name}", _source(connection, settings, release, table.full_name), table)
    rewrite_losses.store_rewritten_groups(connection)
    rewrite_losses.store_differing_pieces(
        connection,
        *(
            {name: _source(connection, settings, of, name) for name in rewrite_losses.RESOLVED_TABLES}
            for of in (release, newest)
        ),
    )
    connection.execute(_CHANGED)
    number = int(release.number)
    for table in STATE_TABLES:
        columns = ", ".join(table.columns)
        connection.execute(
            f"insert into lost_{table.name} select {columns}, {number} from then_{table.name} as former"  # noqa: S608
            f" where {table.group} in (select state_group from needed)"
            f" and {table.group} not in (select state_group from rewritten) and {table.condition}"
            f" and not exists (select 1 from now_{table.name} as present where {_same_key(table)})"
        )
    connection.execute(
        "insert into lost_state_groups_state"  # noqa: S608 - a number
        f" select state_group, room_id, type, state_key, event_before, {number} from differing_pieces as former"
        " where event_before is not null and not is_own and not exists ("
        f" select 1 from now_state_groups_state as present where {_same_key(STATE_TABLES[-1])})"
    )
    for table in STATE_TABLES:
        connection.execute(
            f"insert into now_{table.name} select {', '.join(table.columns)} from lost_{table.name}"  # noqa: S608
            f" where release = {number}"
        )


def _same_key(table: StateTable) -> str:
    return " and ".join(f"present.{name} = former.{name}" for name in table.key)


def _store(connection: DuckDBPyConnection, name: str, source: str, table: StateTable) -> None:
    """Create the table ``name`` with the rows of the chosen state groups."""
    connection.execute(
        f"create or replace table {name} as select {', '.join(table.columns)} from ({source})"  # noqa: S608
        f" where {table.group} in (select id from chosen)"
    )


def _source(connection: DuckDBPyConnection, settings: Settings, release: Release, name: str) -> str:
    """The SELECT that reads the table ``name`` at ``release``."""
    ((_, source),) = duckdb_reader.iterate_view_definitions(connection, settings, release, [name])
    return source
