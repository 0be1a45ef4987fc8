with creations as (
    select room_id, event_id
    from {{ ref('events') }}
    where type = 'm.room.create' and state_key = '' and not rejected
),

state_groups as (
    select sizes.*, intervals.event_id as creation
    from {{ ref('state_group_sizes') }} as sizes
    left join {{ source('state', 'state_intervals') }} as intervals
        on
            sizes.room_id = intervals.room_id
            and intervals.type = 'm.room.create'
            and intervals.state_key = ''
            and sizes.position >= intervals.first_position
            and sizes.position <= intervals.last_position
    -- Synapse stores an empty group as the state before the creation (StateHandler.calculate_context_info).
    where sizes.state_rows > 0 or sizes.events > 0
),

faulty as (
    select state_groups.*, expected.event_id as expected
    from state_groups
    left join creations on state_groups.room_id = creations.room_id and state_groups.creation = creations.event_id
    left join (select room_id, max(event_id) as event_id from creations group by room_id) as expected
        on state_groups.room_id = expected.room_id
    left join {{ source('synapse', 'state_events') }} as stored on state_groups.creation = stored.event_id
    -- If no creation event of the room is stored, the event in the state group may be it, unless this event is stored.
    where
        creations.event_id is null
        and (state_groups.creation is null or expected.event_id is not null or stored.event_id is not null)
),

-- If a group and its predecessor have the same fault, both have it for the same cause. A cause is a faulty group whose
-- predecessor does not have this fault. A group belongs to the cause with the innermost range that contains the group. Ranges
-- of the same level do not overlap.
ranges as (
    select faulty.*, positions.last_position, if(predecessor.state_group is null, 1, 0) as begun
    from faulty
    inner join {{ source('state', 'state_positions') }} as positions
        on faulty.room_id = positions.room_id and faulty.state_group = positions.state_group
    left join faulty as predecessor
        on
            faulty.prev_state_group = predecessor.state_group
            and faulty.room_id = predecessor.room_id
            and faulty.creation is not distinct from predecessor.creation
),

levels as (
    select *, sum(begun) over (partition by room_id order by position) as level
    from (
        select room_id, position, begun, state_group, creation, expected, events from ranges
        union all
        select room_id, last_position + 1, -1, null, null, null, null from ranges where begun = 1
    ) as ends
),

causes as (
    select *, sum(begun) over (partition by room_id, level order by position rows unbounded preceding) as cause
    from levels
    where state_group is not null
)

-- A cause without events is legal: no event has its state groups. Synapse stores the state before and after an event before it
-- stores the event (UnpersistedEventContext.persist), so the groups remain if the event is not stored afterwards. The state
-- after a rejected event belongs to no event, because a rejected event has the state before it
-- (_store_event_state_mappings_txn). A room that is being deleted loses its events first (_purge_room_txn) and its state groups
-- later (purge_room_state).
select
    'state_group_without_creation' as check_name,
    'fail' as severity,
    room_id,
    string(min_by(state_group, position)) as subject,
    coalesce(max(expected), 'the creation of the room') as expected,
    coalesce(min_by(creation, position), 'nothing') || ', in ' || count(*) || ' state groups' as found
from causes
group by room_id, level, cause
having sum(events) > 0
