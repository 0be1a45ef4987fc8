"""SQL over stream IDs for Spark. ``MISSING_RANGES``, ``EVIDENCE_RANGES`` and ``GAPLESS_RUNS`` also run on DuckDB.

IDs are distances, without the sign of negative streams, unless stated otherwise.
"""

from typing import Final

ID_COUNTS: Final = """
with blocks as (
    select stream, table_name, writer, shiftright(id, 6) as block, bit_or(shiftleft(1L, cast(id & 63 as int))) as ids,
        min(id) as first_id, max(id) as last_id, count(*) as rows, count_if(id is null) as null_ids,
        count_if(is_received) as received, count_if(is_received is null) as timeless
    from counted_ids group by stream, table_name, writer, shiftright(id, 6)
),
merged as (
    select stream, table_name, writer, grouping(writer) = 1 as is_total, bit_or(ids) as ids,
        min(first_id) as first_id, max(last_id) as last_id, sum(rows) as rows, sum(null_ids) as null_ids,
        sum(received) as received, sum(timeless) as timeless
    from blocks
    group by stream, table_name, writer, block
        grouping sets ((stream, table_name, block), (stream, table_name, writer))
)
select stream, table_name, writer, is_total, coalesce(sum(bit_count(ids)), 0) as ids,
    min(first_id) as first_id, max(last_id) as last_id, sum(rows) as rows, sum(null_ids) as null_ids,
    sum(received) as received, sum(timeless) as timeless
from merged group by stream, table_name, writer, is_total
"""
"""Counts the rows and the distinct IDs of each table of a stream, and the rows of each writer.

IDs are dense, so each block of 64 IDs is one bitmap, which needs little memory.

Reads ``counted_ids``: stream, table_name, writer, id with its sign, is_received. Returns a row for each stream and
table (is_total), and a row for each of their writers. The rows of writers have no valid ``ids``.
"""

GAPLESS_RUNS: Final = """
select stream, max(distance) as run
from (
    select stream, distance, row_number() over (partition by stream order by distance) as n
    from (select distinct stream, distance from beyond)
)
where distance = n group by stream
"""
"""Counts the IDs that follow a stream's minimum without a gap, as in :func:`safe_bound.extend_without_gap`.

Reads ``beyond``: stream and distance from the minimum, above zero. Returns stream and run (the number of these IDs). A
stream without such IDs has no row.
"""

MISSING_RANGES: Final = """
with points as (
    select distinct stream, id, cast(floor(id / 1000000) as bigint) as block
    from (
        select ids.stream, ids.id from ids join windows on ids.stream = windows.stream
        where ids.id > windows.after and ids.id <= windows.until
        union all select stream, after from windows where until > after
        union all select stream, until + 1 from windows where until > after
    )
),
blocks as (select stream, block, min(id) as lowest, max(id) as highest from points group by stream, block),
followed as (
    select stream, id, lead(id) over (partition by stream, block order by id) as following from points
    union all
    select stream, highest, lead(lowest) over (partition by stream order by block) from blocks
)
select stream, id + 1 as first_id, following - 1 as last_id from followed where following > id + 1
"""
"""Finds ranges of IDs that are missing in a window. A worker's memory contains at most one block of a million IDs.

Reads ``ids`` (stream, id) and ``windows`` (stream, after, until). Each stream has one window with the IDs above
``after`` and up to ``until``. Returns stream, first_id, last_id.
"""

EVIDENCE_RANGES: Final = """
select stream, table_name, evidence, explanation, min(id) as first_id, max(id) as last_id
from (
    select stream, table_name, evidence, explanation, id,
        id - row_number() over (partition by stream, table_name, evidence, explanation order by id) as island
    from evidenced_ids
)
group by stream, table_name, evidence, explanation, island
"""
"""Merges IDs with the same evidence and explanation into ranges.

Reads ``evidenced_ids`` (stream, table_name, id, evidence, explanation), each ID once per table. Returns the same
columns, with first_id and last_id instead of id.
"""

EXPLANATIONS: Final = """
with gone_events as (select event_id, room_id, depth from gone where table_name = 'events'),
rooms_of_gone as (select distinct room_id from gone where room_id is not null),
rooms_with_old_events as (
    select distinct room_id
    from former_events left semi join rooms_of_gone using (room_id) left semi join events using (event_id, room_id)
),
returned_depths as (
    select room_id, max(depth) as depth
    from gone_events left semi join events using (event_id, room_id) group by room_id
),
purges as (
    select resource_id as room_id, bool_or(action <> 'purge_history') as of_room,
        bool_or(action = 'purge_history') as of_history
    from tasks group by resource_id
),
rooms_known_before as (select distinct room_id from former_events left semi join rooms_of_gone using (room_id)),
rooms_with_same_ids as (
    select distinct room_id from former_events left semi join rooms_of_gone using (room_id)
    left semi join events using (event_id, stream_ordering)
),
returned_events as (
    select event_id from former_events left semi join gone using (event_id)
    left anti join events using (event_id, stream_ordering)
),
new_extremities as (select event_id from extremities left anti join former_extremities using (event_id)),
cut_off as (
    select event_id from events left semi join rooms_of_gone using (room_id) where outlier
    union all select event_id from new_extremities
),
cuts as (
    select room_id, max(depth) as depth
    from (
        select room_id, depth
        from former_events left semi join rooms_of_gone using (room_id) left semi join cut_off using (event_id)
        where not coalesce(outlier, false)
        union all select room_id, depth from gone_events left semi join new_extremities using (event_id)
    )
    group by room_id
),
survivors as (
    select room_id, server, min(depth) as depth
    from events left semi join (select room_id from purges where of_history) using (room_id)
    left semi join former_events using (event_id, stream_ordering)
    where state_key is null group by room_id, server
),
first_ids as (
    select room_id, min(case when stream_ordering > 0 then stream_ordering end) as began
    from events left semi join rooms_of_gone using (room_id) group by room_id
),
room_signs as (
    select room_id, rooms.room_id is null or coalesce(purges.of_room, false) as was_deleted,
        rooms_with_old_events.room_id is null and first_ids.room_id is not null as began_anew,
        rooms_known_before.room_id is not null and rooms_with_same_ids.room_id is null and first_ids.room_id is not null
            as was_emptied,
        rooms_known_before.room_id is null as is_new, first_ids.began, coalesce(purges.of_history, false) as was_purged,
        returned_depths.depth as came_back_below, cuts.depth as cut_below,
        depths.min_depth, former_depths.min_depth as former_min_depth
    from rooms_of_gone
    left join rooms using (room_id) left join purges using (room_id) left join rooms_with_old_events using (room_id)
    left join rooms_known_before using (room_id) left join first_ids using (room_id)
    left join returned_depths using (room_id) left join rooms_with_same_ids using (room_id)
    left join cuts using (room_id)
    left join depths using (room_id) left join former_depths using (room_id)
)
select gone.stream, gone.table_name, gone.id, gone.evidence,
    case
        when gone.table_name = 'events' and events.event_id is not null then 'second_life'
        when gone.table_name <> 'events' and gone.event_id is not null and events.event_id is null then 'event_gone'
        when gone.table_name = 'un_partial_stated_event_stream' and returned_events.event_id is not null
            then 'second_life'
        when room_signs.was_deleted then 'room_deleted'
        when gone.table_name = 'un_partial_stated_room_stream' and room_signs.was_emptied then 'room_deleted'
        when gone.table_name = 'events' and room_signs.began_anew
            and (gone.evidence = 'accepted_row' or not room_signs.is_new or gone.id < room_signs.began)
            then 'room_deleted'
        when gone.table_name <> 'events' and room_signs.began_anew and gone.evidence = 'rdata' then 'room_deleted'
        when gone.table_name = 'events' and gone.state_key is null and (
            (room_signs.was_purged and coalesce(gone.depth <= survivors.depth, true))
            or (gone.depth < room_signs.min_depth and room_signs.min_depth > coalesce(room_signs.former_min_depth, -1))
            or gone.depth <= greatest(room_signs.came_back_below, room_signs.cut_below)
            or (gone.depth is null and room_signs.cut_below is not null)
            or room_signs.min_depth > case
                when gone.evidence = 'accepted_row' then null
                when gone.is_recent then coalesce(room_signs.former_min_depth, 1)
                else 1
            end
        ) then 'history_purged'
        when gone.table_name = 'push_rules_stream' and closed.name is not null then 'account_closed'
    end as explanation, case when gone.table_name = 'events' then gone.event_id end as event_id
from gone left join room_signs on gone.room_id = room_signs.room_id
left join survivors on gone.room_id = survivors.room_id and gone.server = survivors.server
left join events on gone.event_id = events.event_id
left join returned_events on gone.event_id = returned_events.event_id
left join closed on gone.user_id = closed.name
"""
"""Explains ``gone``: rows of append-only tables that are no longer stored.

The depth of rows that were only announced is unknown, so any purge of the room may have deleted them. ``is_recent``:
whether the previous release contains the row, or the row was announced after that release read the source. If so, the
purge must be later than that read. ``returned_events``, ``was_emptied``: Synapse deletes rows of
``un_partial_stated_*`` with their event or room (``on delete cascade``). If the event or room is stored again, its
events have new IDs."""
