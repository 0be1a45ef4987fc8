"""Find pieces of state that state groups lost when they were stored in another form.

A compressor stores groups in another form, and so does Synapse when it deletes their predecessor. Both read the state
by an index. If the index is damaged, they read and store a wrong state. The rows of the earlier form are gone in any
case, so the states are compared, not the rows.
"""

from collections.abc import Mapping
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
"""State groups that were stored in another form since the release of their right state: their earlier rows are not
lost."""

_COMPARED_GROUPS: Final = """
create table compared_groups as
select state_group, release from rewritten
union
select prev_state_group, release from present_state_group_edges join rewritten using (state_group)
"""
"""Rewritten groups and their present predecessors, with the release of the right state."""

_PIECES: Final = """
insert into {time}_pieces
select release, state_group, positions.room_id, type, state_key, event_id
from compared_groups
join ({positions}) as positions using (state_group)
join ({intervals}) as intervals
    on positions.room_id = intervals.room_id
    and position between intervals.first_position and intervals.last_position
where {condition}
"""

_DIFFERING_PIECES: Final = """
create table differing_pieces as
with compared as (
    select release, state_group, coalesce(former.room_id, present.room_id) as room_id, type, state_key,
        former.event_id as event_before, present.event_id as event_now
    from former_pieces as former
    full join present_pieces as present using (release, state_group, type, state_key)
    where former.event_id is distinct from present.event_id
)
select * from compared
semi join rewritten using (release, state_group)
anti join present_state_groups_state as own using (state_group, type, state_key)
where not exists (
    select 1 from present_state_group_edges as edges
    join compared as above on above.state_group = edges.prev_state_group and above.release = compared.release
    where edges.state_group = compared.state_group and edges.prev_state_group in (select id from chosen)
    and above.type = compared.type and above.state_key = compared.state_key
    and above.event_before is not distinct from compared.event_before
    and above.event_now is not distinct from compared.event_now)
"""
"""Pieces of state that differ, and for which the group has no row of its own.

A piece that differs in the same way in the present predecessor is left out: it follows the predecessor.
"""


def store_rewritten_groups(connection: DuckDBPyConnection) -> None:
    """Create the table ``rewritten``: state_group, release (of the right state).

    The tables ``damaged``, ``undeletable``, ``former_<table>`` and ``present_<table>`` must exist.
    """
    connection.execute(_REWRITTEN)


def store_differing_pieces(connection: DuckDBPyConnection, sources: Sources) -> None:
    """Create ``former_pieces``, and ``differing_pieces``: release, state_group, room_id, type, state_key, event_before,
    event_now.

    ``differing_pieces`` has, for each rewritten group, the pieces of state whose event in the newest release
    (``event_now``) differs from the event in the group's release of the table ``rewritten`` (``event_before``), if the
    group has no row of its own for the piece. A piece that differs in the same way in the group's predecessor is left
    out. ``event_before`` or ``event_now`` is NULL if that state lacks the piece.
    """
    columns = "release bigint, state_group bigint, room_id text, type text, state_key text, event_id text"
    for time in ("former", "present"):
        connection.execute(f"create table {time}_pieces ({columns})")
    connection.execute(_COMPARED_GROUPS)
    for (release,) in connection.execute("select distinct release from rewritten").fetchall():
        _store_pieces(connection, "former", sources[release], f"release = {release}")
    _store_pieces(connection, "present", sources[max(sources)], "true")
    connection.execute(_DIFFERING_PIECES)


def list_inheriting_groups(connection: DuckDBPyConnection) -> list[int]:
    """Return the state groups that now inherit a piece of state that their right state lacks."""
    found = connection.execute(
        "select distinct state_group from differing_pieces where event_before is null order by 1"
    )
    return [group for (group,) in found.fetchall()]


def _store_pieces(connection: DuckDBPyConnection, time: str, tables: Mapping[str, str], condition: str) -> None:
    connection.execute(
        _PIECES.format(time=time, positions=tables[POSITIONS], intervals=tables[INTERVALS], condition=condition)
    )
