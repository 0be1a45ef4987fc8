-- Rooms and stays that each user's feed covers, and the part that it omits because a room had too many events.
with room_ends as (
    -- Older events of a room are not read, so no feed with the room contains them.
    select room_id, stream_ordering from ({{ feed_candidates() }})
    where nth = {{ var('feed_length') | int }} + 1
),

memberships as (
    select
        memberships.user_id,
        memberships.room_id,
        memberships.membership,
        events.stream_ordering,
        events.outlier,
        min(case when memberships.membership = 'join' then events.stream_ordering end)
            over (partition by memberships.user_id, memberships.room_id) as first_joined
    from {{ source('synapse', 'room_memberships') }} as memberships
    inner join {{ ref('events') }} as events on memberships.event_id = events.event_id
    where {{ is_local('memberships.user_id') }} and not events.rejected and not coalesce(events.soft_failed, false)
),

joined as (
    select distinct room_id, user_id from {{ ref('visibility_intervals') }}
    where membership = 'join'
),

-- A user that left or was kicked or banned gets the events before the departure, even if the user forgot the room
-- (synapse.handlers.sync). A leave of a joined user is a departure only if it follows a join: the user may have declined an
-- invite and accepted a later one.
departures as (
    select memberships.user_id, memberships.room_id, max(memberships.stream_ordering) as stream_ordering
    from memberships
    inner join joined on memberships.room_id = joined.room_id and memberships.user_id = joined.user_id
    left join {{ ref('current_rooms') }} as current_rooms
        on memberships.room_id = current_rooms.room_id and memberships.user_id = current_rooms.user_id
    where
        memberships.membership in ('leave', 'ban')
        and not memberships.outlier
        and (current_rooms.user_id is null or memberships.first_joined < memberships.stream_ordering)
    group by memberships.user_id, memberships.room_id
),

stays as (
    select
        coalesce(current_rooms.user_id, departures.user_id) as user_id,
        coalesce(current_rooms.room_id, departures.room_id) as room_id,
        current_rooms.user_id is not null as is_joined,
        current_rooms.since_stream_ordering as began,
        departures.stream_ordering as left_at
    from {{ ref('current_rooms') }} as current_rooms
    full outer join departures
        on current_rooms.room_id = departures.room_id and current_rooms.user_id = departures.user_id
)

select
    stays.user_id,
    stays.room_id,
    stays.began,
    case when not stays.is_joined then stays.left_at end as ended,
    case
        when room_ends.stream_ordering is null then null
        -- Events before the user's join do not count.
        when stays.is_joined and not coalesce(room_ends.stream_ordering < stays.began, false) then room_ends.stream_ordering
        -- The leave itself is included, however many events follow.
        when stays.left_at is not null then least(room_ends.stream_ordering, stays.left_at - 1)
    end as missing_until
from stays
left join room_ends on stays.room_id = room_ends.room_id
