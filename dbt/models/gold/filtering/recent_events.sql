{%- set per_room, rooms_per_user = var('recent_events_per_room') | int, var('recent_rooms_per_user') | int -%}
with stays as (
    select
        current_rooms.user_id,
        current_rooms.room_id,
        row_number() over (
            partition by current_rooms.user_id order by changes.stream_ordering desc, current_rooms.room_id
        ) as room_rank
    from {{ ref('current_rooms') }} as current_rooms
    inner join {{ ref('room_last_change') }} as changes on current_rooms.room_id = changes.room_id
),

readers as (
    select intervals.*
    from {{ ref('visibility_intervals') }} as intervals
    inner join stays on intervals.room_id = stays.room_id and intervals.user_id = stays.user_id
    where stays.room_rank <= {{ rooms_per_user }}
),

timeline_ranks as (
    select
        event_id,
        topological_ordering,
        stream_ordering,
        row_number() over (
            partition by room_id order by topological_ordering desc, stream_ordering desc
        ) as nth
    from {{ ref('room_timeline') }}
),

-- In a room with many hidden events, Synapse does not search back without limit either (synapse.handlers.sync).
newest_events as (
    select event_id, topological_ordering, stream_ordering, nth from timeline_ranks
    where nth <= 10 * {{ per_room }}
),

newest_visibility_inputs as (
    select visibility_inputs.*
    from {{ ref('event_visibility_inputs') }} as visibility_inputs
    inner join newest_events on visibility_inputs.event_id = newest_events.event_id
),

visible as (
    {{ visibility('newest_visibility_inputs', 'readers', [false]) }}
),

ranked as (
    select
        visible.user_id,
        stays.room_rank,
        visible.room_id,
        row_number() over (partition by visible.user_id, visible.room_id order by newest_events.nth) as event_rank,
        visible.event_id,
        newest_events.topological_ordering,
        newest_events.stream_ordering,
        visible.outcome
    from visible
    inner join stays on visible.room_id = stays.room_id and visible.user_id = stays.user_id
    inner join newest_events on visible.event_id = newest_events.event_id
    where visible.outcome <> 'hidden'
)

select
    user_id,
    cast(room_rank as int) as room_rank,
    room_id,
    cast(event_rank as int) as event_rank,
    event_id,
    topological_ordering,
    stream_ordering,
    outcome
from ranked
where event_rank <= {{ per_room }}
