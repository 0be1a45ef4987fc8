{{ config(clustered_by='room_id') }}
-- Memberships of each user of this server by intervals of positions; every position is in one interval. A user whose
-- membership is only in a state group is no reader: Synapse retains the state groups of events that it then did not store.
with readers as (
    select room_id, user_id
    from {{ source('synapse', 'room_memberships') }} as members where {{ is_local('user_id') }}
    union all
    select room_id, user_id from {{ source('synapse', 'local_current_membership') }} as members
    union all
    select room_id, state_key from {{ source('synapse', 'events') }} as events
    where type = 'm.room.member' and {{ is_local('state_key') }}
),

ends as (
    select room_id, max(position) as last_position
    from {{ source('state', 'state_positions') }}
    group by room_id
),

memberships as (
    select
        intervals.room_id,
        intervals.state_key as user_id,
        intervals.first_position,
        intervals.last_position,
        event.membership
    from {{ source('state', 'state_intervals') }} as intervals
    inner join {{ ref('event_visibility_inputs') }} as event
        -- Most events are no memberships, and are not searched.
        on intervals.event_id = event.event_id
            and event.withheld is null and event.type = 'm.room.member' and event.membership is not null
    where intervals.type = 'm.room.member' and {{ is_local('intervals.state_key') }}
),

-- A reader has no membership at position -1 (unknown state), before the first interval, and after the end of an interval.
boundaries as (
    select
        memberships.room_id,
        memberships.user_id,
        case when sides.is_begin then memberships.first_position else memberships.last_position + 1 end as position,
        case when sides.is_begin then memberships.membership end as membership
    from memberships
    cross join (select true as is_begin union all select false) as sides
    union all
    select room_id, user_id, -1, null from readers
),

-- All windows have the same order, so that Spark sorts once. Of several boundaries at one position, the one with a
-- membership comes last.
ordered_boundaries as (
    select
        room_id,
        user_id,
        position,
        membership,
        lead(position) over (partition by room_id, user_id order by position, membership nulls first) as next_position
    from boundaries
),

-- A change of the display name does not begin a new interval.
transitions as (
    select
        room_id,
        user_id,
        position,
        membership,
        lag(position) over (partition by room_id, user_id order by position, membership nulls first) is not null
        and lag(membership) over (partition by room_id, user_id order by position, membership nulls first)
        is not distinct from membership as is_continuation
    from ordered_boundaries
    where next_position is null or next_position > position
),

stays as (
    select
        room_id,
        user_id,
        position as first_position,
        lead(position) over (partition by room_id, user_id order by position, membership nulls first) - 1 as last_position,
        membership
    from transitions
    where not is_continuation
)

select
    stays.room_id,
    stays.user_id,
    stays.first_position,
    coalesce(stays.last_position, ends.last_position, -1) as last_position,
    stays.membership
from stays
left join ends on stays.room_id = ends.room_id
where stays.first_position <= coalesce(stays.last_position, ends.last_position, -1)
union all
-- Users that were never members.
select rooms.room_id, null, -1, coalesce(ends.last_position, -1), null
from (select distinct room_id from {{ ref('event_visibility_inputs') }} as events) as rooms
left join ends on rooms.room_id = ends.room_id
