-- One finding for each missing state event, with the oldest group that lacks it. `found`: the state event that the group has
-- instead. The state at the forward extremities may lack current state although no row was lost, for example because an operator
-- deleted the other extremities.
with after_events as (
    select events.room_id, events.type, events.state_key, events.event_id, events.state_group, positions.position
    from {{ ref('events') }} as events
    inner join {{ source('state', 'state_positions') }} as positions
        on events.room_id = positions.room_id and events.state_group = positions.state_group
    where events.is_state and not events.rejected
),

-- The current state must be the state after the forward extremity. If a room has several forward extremities, it is compared only
-- if all of them have the same state group.
ends as (
    select ends.room_id, max(positions.state_group) as state_group, max(positions.position) as position
    from {{ source('synapse', 'event_forward_extremities') }} as ends
    left join {{ rows_with(source('synapse', 'event_to_state_groups'), source('synapse', 'event_forward_extremities')) }} as uses
        on ends.event_id = uses.event_id
    left join {{ source('state', 'state_positions') }} as positions
        on ends.room_id = positions.room_id and uses.state_group = positions.state_group
    group by ends.room_id
    having count(*) = count(positions.state_group) and count(distinct positions.state_group) = 1
),

-- A state event is in the state after itself, unless it was rejected. Current state is in the state after the forward
-- extremities.
owed as (
    select room_id, type, state_key, event_id, state_group, position, true as is_own
    from after_events
    union all
    select pieces.room_id, pieces.type, pieces.state_key, pieces.event_id, ends.state_group, ends.position, false as is_own
    from {{ source('synapse', 'current_state_events') }} as pieces
    inner join ends on pieces.room_id = ends.room_id
)

select
    case
        when bool_or(owed.is_own) then 'state_group_incomplete'
        else 'current_state_differs'
    end as check_name,
    'fail' as severity,
    owed.room_id,
    if(bool_or(owed.is_own), owed.event_id, {{ piece_of_state('max(owed.type)', 'max(owed.state_key)') }}) as subject,
    if(bool_or(owed.is_own), 'to be in state group ' || min(owed.state_group), 'nothing') as expected,
    if(bool_or(owed.is_own), coalesce(min_by(intervals.event_id, owed.state_group), 'nothing'), owed.event_id) as found
from owed
left join {{ source('state', 'state_intervals') }} as intervals
    on
        owed.room_id = intervals.room_id
        and owed.type = intervals.type
        and owed.state_key = intervals.state_key
        and owed.position >= intervals.first_position
        and owed.position <= intervals.last_position
where intervals.event_id is null or (owed.is_own and intervals.event_id <> owed.event_id)
group by owed.room_id, owed.event_id
