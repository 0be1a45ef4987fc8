"""Find pieces of state that state groups lost when they were stored otherwise.

A compressor stores groups otherwise, and so does Synapse when it deletes their predecessor. Both read the state by an
index. If the index is damaged, they store a wrong state: its rows are then where the reader found them.
"""

from typing import Final

from duckdb import DuckDBPyConnection

POSITIONS: Final = "silver.state_positions"
INTERVALS: Final = "silver.state_intervals"
RESOLVED_TABLES: Final = (POSITIONS, INTERVALS)

_REWRITTEN: Final = """
create or replace table rewritten as
select state_group from now_state_group_edges as edges where not exists (
    select 1 from then_state_group_edges as former
    where former.state_group = edges.state_group and former.prev_state_group = edges.prev_state_group)
union
select state_group from now_state_groups_state as pieces where not exists (
    select 1 from then_state_groups_state as former where former.state_group = pieces.state_group
    and former.type = pieces.type and former.state_key = pieces.state_key)
union
select former.state_group from then_state_group_edges as former
where former.state_group not in (select state_group from now_state_group_edges)
    and former.prev_state_group not in (select id from bronze.state_groups union select state_group from needed)
"""
"""State groups that were stored otherwise since the release: their earlier rows are not lost."""

_DIFFERING: Final = """
create or replace table differing as
select state_group
from ({then_positions}) as former
join ({now_positions}) as present using (state_group)
join then_state_groups on then_state_groups.id = state_group
join now_state_groups on now_state_groups.id = state_group
where former.digest <> present.digest and state_group in (select state_group from rewritten)
    and now_state_groups.event_id is not distinct from then_state_groups.event_id
"""
"""State groups that were stored otherwise, and with another state. A group of another event has its number again."""

_PIECES: Final = """
create or replace table {time}_pieces as
select state_group, positions.room_id, type, state_key, event_id
from ({positions}) as positions
join ({intervals}) as intervals
    on positions.room_id = intervals.room_id
    and position between intervals.first_position and intervals.last_position
where state_group in (
    select state_group from differing
    union select prev_state_group from now_state_group_edges where state_group in (select state_group from differing))
"""

_LOST: Final = """
create or replace table differing_pieces as
with own as (
    -- With rows that a later release has, which may be as wrong as they were there.
    select state_group, room_id, type, state_key, event_id from now_state_groups_state
    where state_group in (select state_group from differing)
),
present as (
    select state_group, coalesce(own.room_id, resolved.room_id) as room_id, type, state_key,
        coalesce(own.event_id, resolved.event_id) as event_id
    from now_pieces as resolved full join own using (state_group, type, state_key)
),
compared as (
    select state_group, coalesce(former.room_id, present.room_id) as room_id, type, state_key,
        former.event_id as event_before, present.event_id as event_now
    from then_pieces as former full join present using (state_group, type, state_key)
    where former.event_id is distinct from present.event_id
)
select compared.*, own.event_id is not null as is_own
from compared
left join own using (state_group, type, state_key)
where state_group in (select state_group from differing) and not exists (
    select 1 from now_state_group_edges as edges join compared as above on above.state_group = edges.prev_state_group
    where edges.state_group = compared.state_group and edges.prev_state_group in (select id from chosen)
    and above.type = compared.type and above.state_key = compared.state_key and own.event_id is null
    and above.event_before is not distinct from compared.event_before
    and above.event_now is not distinct from compared.event_now)
"""
"""Pieces of state that differ. A piece that differs in the present predecessor in the same way follows it."""


def store_rewritten_groups(connection: DuckDBPyConnection) -> None:
    """Create the table ``rewritten`` from the tables ``then_<table>`` and ``now_<table>``."""
    connection.execute(_REWRITTEN)


def store_differing_pieces(connection: DuckDBPyConnection, then: dict[str, str], now: dict[str, str]) -> None:
    """Create ``differing_pieces``: state_group, room_id, type, state_key, event_before, event_now, is_own.

    ``event_before`` or ``event_now`` is NULL if the state lacks the piece. ``is_own``: the group itself has the row.

    :param then: the SELECTs that read POSITIONS and INTERVALS at the earlier release. ``now``: at the newest release.
    """
    connection.execute(_DIFFERING.format(then_positions=then[POSITIONS], now_positions=now[POSITIONS]))
    for time, sources in (("then", then), ("now", now)):
        connection.execute(_PIECES.format(time=time, positions=sources[POSITIONS], intervals=sources[INTERVALS]))
    connection.execute(_LOST)
