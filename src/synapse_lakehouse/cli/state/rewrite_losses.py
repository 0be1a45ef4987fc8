"""Find pieces of state that state groups lost when they were stored otherwise.

A compressor stores groups otherwise, and so does Synapse when it deletes their predecessor. Both read the state by an
index. If the index is damaged, they store a wrong state: its rows are then where the reader found them.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from duckdb import DuckDBPyConnection

from synapse_lakehouse.cli.state.damaged_groups import POSITIONS, Sources

INTERVALS: Final = "silver.state_intervals"

_REWRITTEN: Final = """
create or replace table rewritten as
select state_group, release from damaged where state_group in (select id from present_state_groups) and state_group in (
    select state_group from present_state_group_edges as edges where not exists (
        select 1 from former_state_group_edges as former
        where former.state_group = edges.state_group and former.prev_state_group = edges.prev_state_group)
    union
    select state_group from present_state_groups_state as pieces where not exists (
        select 1 from former_state_groups_state as former where former.state_group = pieces.state_group
        and former.type = pieces.type and former.state_key = pieces.state_key)
    union
    select former.state_group from former_state_group_edges as former
    where former.state_group not in (select state_group from present_state_group_edges)
        and former.prev_state_group not in (select state_group from undeletable))
"""
"""State groups that were stored otherwise since the release: their earlier rows are not lost."""

_PIECES: Final = """
insert into {time}_pieces
select {release}, state_group, positions.room_id, type, state_key, event_id
from ({positions}) as positions
join ({intervals}) as intervals
    on positions.room_id = intervals.room_id
    and position between intervals.first_position and intervals.last_position
where state_group in (
    select state_group from rewritten where release = {release} or {release} = {newest}
    union
    select prev_state_group from present_state_group_edges join rewritten using (state_group)
    where release = {release} or {release} = {newest})
"""

_DIFFERING_PIECES: Final = """
create or replace table differing_pieces as
with compared as (
    select former.release, state_group, former.room_id, type, state_key, former.event_id as event_before,
        present.event_id as event_now
    from former_pieces as former
    left join present_pieces as present using (state_group, type, state_key)
    where former.event_id is distinct from present.event_id
    union all
    select of_release.release, state_group, present.room_id, type, state_key, null, present.event_id
    from present_pieces as present
    join (select distinct release, state_group from former_pieces) as of_release using (state_group)
    anti join former_pieces as former
        on former.release = of_release.release and former.state_group = present.state_group
        and former.type = present.type and former.state_key = present.state_key
)
select compared.*, own.event_id is not null as is_own
from compared
semi join rewritten using (release, state_group)
left join present_state_groups_state as own using (state_group, type, state_key)
where not exists (
    select 1 from present_state_group_edges as edges
    join compared as above on above.state_group = edges.prev_state_group and above.release = compared.release
    where edges.state_group = compared.state_group and edges.prev_state_group in (select id from chosen)
    and above.type = compared.type and above.state_key = compared.state_key and own.event_id is null
    and above.event_before is not distinct from compared.event_before
    and above.event_now is not distinct from compared.event_now)
"""
"""Pieces of state that differ. A piece that differs in the present predecessor in the same way follows it."""


def store_rewritten_groups(connection: DuckDBPyConnection) -> None:
    """Create the table ``rewritten``: state_group, release. It needs the former and present rows of damaged groups."""
    connection.execute(_REWRITTEN)


def store_differing_pieces(connection: DuckDBPyConnection, sources: Sources) -> None:
    """Create ``differing_pieces``: release, state_group, room_id, type, state_key, event_before, event_now, is_own.

    It has the pieces in which a rewritten group differs from the release with its right state. ``event_before`` or
    ``event_now`` is NULL if the state lacks the piece. ``is_own``: the group itself has the row.
    """
    newest, columns = (
        max(sources),
        "release bigint, state_group bigint, room_id text, type text, state_key text, event_id text",
    )
    of_rewritten = connection.execute("select distinct release from rewritten").fetchall()
    for time, releases in (("former", [release for (release,) in of_rewritten]), ("present", [newest])):
        connection.execute(f"create table {time}_pieces ({columns})")
        _store_pieces(connection, time, releases, sources, newest)
    connection.execute(_DIFFERING_PIECES)


def list_inheriting_groups(connection: DuckDBPyConnection) -> list[int]:
    """Return the state groups that have a piece of their predecessor which they lacked."""
    found = connection.execute(
        "select distinct state_group from differing_pieces where event_before is null and not is_own order by 1"
    )
    return [group for (group,) in found.fetchall()]


def _store_pieces(
    connection: DuckDBPyConnection,
    time: str,
    releases: Iterable[int],
    sources: Mapping[int, Mapping[str, str]],
    newest: int,
) -> None:
    for release in releases:
        tables = sources[release]
        connection.execute(
            _PIECES.format(
                time=time, release=release, newest=newest, positions=tables[POSITIONS], intervals=tables[INTERVALS]
            )
        )
