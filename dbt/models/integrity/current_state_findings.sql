-- Pieces of current state that differ from their last change, or from the state at the room's forward extremities.
with lives as (
    -- A room that was left or purged and joined again starts a new history: earlier deltas no longer count.
    select room_id, max(stream_id) as began_at
    from {{ source('synapse', 'current_state_delta_stream') }}
    where type = 'm.room.create' and state_key = '' and event_id is not null
    group by room_id
),

delta as (
    select deltas.room_id, deltas.type, deltas.state_key, max_by(deltas.event_id, deltas.stream_id) as event_id
    from {{ source('synapse', 'current_state_delta_stream') }} as deltas
    left join lives on deltas.room_id = lives.room_id
    where deltas.stream_id >= coalesce(lives.began_at, deltas.stream_id)
    group by deltas.room_id, deltas.type, deltas.state_key
),

-- State resolution keeps each piece of state on which all forward extremities agree. During a fast join of a room, the
-- state at the extremities is not complete, and a room that this server has left has no current state.
extremities as (
    select
        extremities.room_id,
        positions.position,
        count(*) over (partition by extremities.room_id) as extremities,
        count(positions.position) over (partition by extremities.room_id) as known_extremities
    from {{ source('synapse', 'event_forward_extremities') }} as extremities
    left join {{ rows_with(source('synapse', 'event_to_state_groups'), source('synapse', 'event_forward_extremities')) }} as groups
        on extremities.event_id = groups.event_id
    left join {{ source('state', 'state_positions') }} as positions
        on extremities.room_id = positions.room_id and groups.state_group = positions.state_group
    left anti join {{ source('synapse', 'partial_state_rooms') }} as partial on extremities.room_id = partial.room_id
    left semi join {{ source('synapse', 'current_state_events') }} as current_state
        on extremities.room_id = current_state.room_id
),

agreed as (
    select intervals.room_id, intervals.type, intervals.state_key, min(intervals.event_id) as event_id
    from extremities
    inner join {{ source('state', 'state_intervals') }} as intervals
        on
            extremities.room_id = intervals.room_id
            and extremities.position >= intervals.first_position
            and extremities.position <= intervals.last_position
    where extremities.extremities = extremities.known_extremities
    group by intervals.room_id, intervals.type, intervals.state_key
    having count(*) = max(extremities.extremities) and min(intervals.event_id) = max(intervals.event_id)
),

pieces as (
    select
        room_id,
        type,
        state_key,
        max(event_id) filter (where origin = 'current') as current_event_id,
        max(event_id) filter (where origin = 'delta') as delta_event_id,
        max(event_id) filter (where origin = 'agreed') as agreed_event_id,
        count_if(origin = 'delta') > 0 as has_delta
    from (
        select room_id, type, state_key, event_id, 'current' as origin from {{ source('synapse', 'current_state_events') }}
        union all
        select room_id, type, state_key, event_id, 'delta' from delta
        union all
        select room_id, type, state_key, event_id, 'agreed' from agreed
    ) as origins
    group by room_id, type, state_key
),

-- Synapse once deleted the current state of rooms that the server had left, without deltas (delete_old_current_state_events).
used_rooms as (
    select room_id from {{ source('synapse', 'current_state_events') }}
    union
    select room_id from {{ source('synapse', 'local_current_membership') }} where membership = 'join'
),

-- Missing events are findings of reference_findings. A purged room has no events, so its deltas are not compared. A room that is
-- older than current_state_delta_stream has no deltas for its first state.
checked as (
    select
        pieces.*,
        case
            when not pieces.has_delta and lives.began_at is not null and pieces.current_event_id is not null
                then 'state_reset'
            when pieces.has_delta and pieces.delta_event_id is distinct from pieces.current_event_id
                and events.event_id is not null then 'state_reset'
            when pieces.agreed_event_id is distinct from pieces.current_event_id and pieces.agreed_event_id is not null
                and (pieces.current_event_id is null or events.event_id is not null) then 'current_state_differs'
        end as check_name
    from pieces
    left join lives on pieces.room_id = lives.room_id
    left join {{ source('synapse', 'state_events') }} as events
        on coalesce(pieces.current_event_id, pieces.delta_event_id) = events.event_id
    left semi join used_rooms on pieces.room_id = used_rooms.room_id
    left anti join {{ ref('reference_findings') }} as missing
        on pieces.current_event_id = missing.subject and missing.check_name in ('event_missing', 'json_without_event')
)

select
    check_name,
    'fail' as severity,
    room_id,
    {{ piece_of_state('type', 'state_key') }} as subject,
    coalesce(if(check_name = 'state_reset', delta_event_id, agreed_event_id), 'nothing') as expected,
    coalesce(current_event_id, 'nothing') as found
from checked
where check_name is not null
