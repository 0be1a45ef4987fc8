"""Find state groups whose state differs from that in an earlier release, and the releases from which to restore them.

Synapse never changes the state of a group, so the oldest readable release with the group has the right state. A group
is restored from the newest release with this state. If the group has several rows for one piece of state, it is
restored from the oldest release: the state in the lake may then be right, and the rows may be wrong.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.iceberg.read.sql_text import quote_literal

GROUPS: Final = "bronze.state_groups"
EDGES: Final = "bronze.state_group_edges"
ROWS: Final = "bronze.state_groups_state"
POSITIONS: Final = "silver.state_positions"

Sources = Mapping[int, Mapping[str, str]]
"""For each release (by number) and table (by name), the SELECT that reads the table."""

_HISTORY: Final = """
insert into history
select {release}, id, groups.room_id, event_id, digest
from ({groups}) as groups
left join ({positions}) as positions on state_group = id
where id in (select id from chosen)
"""

_DAMAGED: Final = """
create or replace table damaged as
with repeated as (
    select distinct state_group from ({rows})
    where state_group in (select id from chosen)
    group by state_group, type, state_key having count(*) > 1
),
present as (
    select state_group, arg_max(struct_pack(room_id, event_id), release) as identity from history group by all
),
same as (
    select history.* from history join present using (state_group)
    where room_id = identity.room_id and event_id is not distinct from identity.event_id
),
sound as (
    select state_group, arg_min(digest, release) as digest from same group by all
)
select state_group, if(state_group in (select state_group from repeated), min(release), max(release)) as release
from same
join sound using (state_group, digest)
group by state_group
having max(release) <> {newest} or state_group in (select state_group from repeated)
"""
"""``same`` leaves out releases in which a number belonged to another group. After a restore, Synapse reuses numbers."""

_REUSED: Final = """
select count(*) from (
    select state_group from history group by all having count(distinct struct_pack(room_id, event_id)) > 1)
"""

_MISSING_PREDECESSORS: Final = """
insert into chosen
select distinct prev_state_group
from (
    select prev_state_group from ({edges}) where state_group in (select id from chosen)
    union select prev_state_group from former_state_group_edges
) as edges
where prev_state_group not in (select id from chosen)
    and not exists (select 1 from ({groups}) as groups where groups.id = edges.prev_state_group)
returning id
"""


def choose_groups(
    connection: DuckDBPyConnection, sources: Sources, groups: Iterable[int], rooms: Iterable[str]
) -> None:
    """Create the table ``chosen`` (id) with ``groups``, and with all groups that ``rooms`` have in any release."""
    connection.execute("create table chosen (id bigint primary key)")
    for group in groups:
        connection.execute(f"insert or ignore into chosen values ({int(group)})")  # noqa: S608 - a number
    names = ", ".join(map(quote_literal, rooms))
    for source in {tables[GROUPS] for tables in sources.values()} if names else ():
        connection.execute(f"insert or ignore into chosen select id from ({source}) where room_id in ({names})")  # noqa: S608


def add_missing_predecessors(connection: DuckDBPyConnection, newest: Mapping[str, str]) -> bool:
    """Add to ``chosen`` those predecessors of its groups that the newest release lacks. Return whether any was added.

    :param newest: the SELECTs of the newest release, by table.
    """
    added = connection.execute(_MISSING_PREDECESSORS.format(edges=newest[EDGES], groups=newest[GROUPS])).fetchall()
    return bool(added)


def find_damaged_groups(connection: DuckDBPyConnection, sources: Sources) -> list[int]:
    """Create the table ``damaged`` (state_group, release), and return the releases in it, the newest first.

    ``damaged`` contains the chosen groups that the newest release lacks, that have another state in it, or that have
    several rows for one piece of state. ``release`` is the release from which to restore the group.
    """
    columns = "release bigint, state_group bigint, room_id text, event_id text, digest bigint"
    connection.execute(f"create or replace table history ({columns})")
    for release, tables in sources.items():
        connection.execute(_HISTORY.format(release=release, groups=tables[GROUPS], positions=tables[POSITIONS]))
    newest = max(sources)
    connection.execute(_DAMAGED.format(newest=newest, rows=sources[newest][ROWS]))
    found = connection.execute("select distinct release from damaged order by 1 desc").fetchall()
    return [release for (release,) in found]


def count_reused_groups(connection: DuckDBPyConnection) -> int:
    """Return the number of chosen groups whose room or event is not the same in all releases."""
    ((count,),) = connection.execute(_REUSED).fetchall()
    return int(count)
