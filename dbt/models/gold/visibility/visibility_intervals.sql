-- Which membership each user of this server had at which positions of a room's state; every position is in one interval.
-- State groups alone make nobody a reader: Synapse keeps the group of an event that it then refused to store.
with readers as (
    select room_id, user_id from {{ source('synapse', 'room_memberships') }} where {{ is_local('user_id') }}
    union
    select room_id, user_id from {{ source('synapse', 'local_current_membership') }}
    union
    select room_id, state_key from {{ each_row_of(source('synapse', 'events')) }} as events
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
    inner join {{ each_row_of(ref('event_circumstances')) }} as event
        -- Most events are no memberships, and need not be looked for.
        on intervals.event_id = event.event_id
            and event.withheld is null and event.type = 'm.room.member' and event.membership is not null
    where intervals.type = 'm.room.member' and {{ is_local('intervals.state_key') }}
),

-- Where nothing is said of a user, from -1 (no position is known) to the room's last one, the membership is NULL.
said as (
    select
        room_id,
        user_id,
        first_position,
        last_position,
        membership,
        lead(first_position) over (partition by room_id, user_id order by first_position) as next_position
    from (
        select room_id, user_id, first_position, last_position, membership from memberships
        union all
        select room_id, user_id, -2, -2, null from readers
    )
),

covered as (
    select
        said.room_id,
        said.user_id,
        piece.first_position,
        piece.last_position,
        piece.membership
    from said
    left join ends on said.room_id = ends.room_id
    lateral view inline(array(
        named_struct('first', said.first_position, 'last', said.last_position, 'membership', said.membership),
        named_struct(
            'first', said.last_position + 1,
            'last', coalesce(said.next_position - 1, ends.last_position, -1),
            'membership', cast(null as string)
        )
    )) piece as first_position, last_position, membership
    where piece.first_position between -1 and piece.last_position
),

-- A change of display name is no change here.
marked as (
    select
        room_id,
        user_id,
        first_position,
        last_position,
        membership,
        lag(last_position) over (partition by room_id, user_id order by first_position) = first_position - 1
        and lag(membership) over (partition by room_id, user_id order by first_position) <=> membership as goes_on
    from covered
),

numbered as (
    select
        room_id,
        user_id,
        first_position,
        last_position,
        membership,
        count_if(not coalesce(goes_on, false))
            over (partition by room_id, user_id order by first_position rows unbounded preceding) as stretch
    from marked
)

select
    room_id,
    user_id,
    min(first_position) as first_position,
    max(last_position) as last_position,
    any_value(membership) as membership
from numbered
group by room_id, user_id, stretch
union all
-- Somebody who never was a member.
select rooms.room_id, null, -1, coalesce(ends.last_position, -1), null
from (select distinct room_id from {{ each_row_of(ref('event_circumstances')) }} as events) as rooms
left join ends on rooms.room_id = ends.room_id
