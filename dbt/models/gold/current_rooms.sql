with joined as (
    select room_id, user_id, event_id, membership
    from {{ source('synapse', 'local_current_membership') }}
    where membership = 'join'
),

-- Most memberships are those of other servers' users, and are not searched.
memberships as (
    select
        memberships.room_id,
        memberships.user_id,
        memberships.event_id,
        memberships.membership,
        events.stream_ordering,
        events.received_ts
    from {{ source('synapse', 'room_memberships') }} as memberships
    left semi join joined on memberships.room_id = joined.room_id and memberships.user_id = joined.user_id
    inner join {{ ref('events') }} as events on memberships.event_id = events.event_id
    where not events.rejected and not coalesce(events.soft_failed, false)
),

-- A new display name creates another join event. The stay began with the first join after the last membership other than join.
last_absence as (
    select room_id, user_id, max(stream_ordering) as stream_ordering
    from memberships
    where membership <> 'join'
    group by room_id, user_id
),

stays as (
    select
        memberships.room_id,
        memberships.user_id,
        min_by(memberships.event_id, memberships.stream_ordering) as event_id,
        min(memberships.stream_ordering) as stream_ordering,
        min_by(memberships.received_ts, memberships.stream_ordering) as received_ts
    from memberships
    left join last_absence
        on memberships.room_id = last_absence.room_id and memberships.user_id = last_absence.user_id
    where
        memberships.membership = 'join'
        and (last_absence.stream_ordering is null or memberships.stream_ordering > last_absence.stream_ordering)
    group by memberships.room_id, memberships.user_id
)

select
    joined.user_id,
    joined.room_id,
    joined.membership,
    joined.event_id as membership_event_id,
    member_event.stream_ordering as membership_stream_ordering,
    coalesce(stays.event_id, joined.event_id) as since_event_id,
    coalesce(stays.stream_ordering, member_event.stream_ordering) as since_stream_ordering,
    {{ to_timestamp('coalesce(stays.received_ts, member_event.received_ts)') }} as since,
    rooms.name as room_name,
    rooms.canonical_alias,
    rooms.room_type,
    rooms.room_version,
    rooms.encryption,
    rooms.join_rule,
    rooms.history_visibility,
    rooms.joined_members,
    rooms.joined_local_members
from joined
left join {{ ref('events') }} as member_event on joined.event_id = member_event.event_id
left join stays on joined.room_id = stays.room_id and joined.user_id = stays.user_id
left join {{ ref('rooms') }} as rooms on joined.room_id = rooms.room_id
