-- State resolution can change a membership too: it restores an older event, or removes the membership. Rejected and
-- soft-failed events change nothing.
with changes as (
    select memberships.user_id, memberships.room_id, memberships.event_id, events.stream_ordering, 1 as rank
    from {{ source('synapse', 'room_memberships') }} as memberships
    inner join {{ ref('events') }} as events on memberships.event_id = events.event_id
    where not events.rejected and not coalesce(events.soft_failed, false)
    union all
    select deltas.state_key, deltas.room_id, deltas.event_id, deltas.stream_id, 0
    from {{ source('synapse', 'current_state_delta_stream') }} as deltas
    -- A purged room has no row in rooms, but its deltas remain.
    inner join {{ source('synapse', 'rooms') }} as rooms on deltas.room_id = rooms.room_id
    where deltas.type = 'm.room.member'
),

-- The stream ID of a delta is the first stream_ordering of its batch. The event that caused it has this ID or a higher one.
latest as (
    select
        user_id,
        max_by(struct(room_id, event_id), struct(stream_ordering, rank)) as change,
        max(stream_ordering) as stream_ordering
    from changes
    group by user_id
)

select
    latest.user_id,
    {{ is_local('latest.user_id') }} as is_local,
    latest.change.room_id,
    latest.change.event_id,
    events.sender,
    case when latest.change.event_id is null then 'leave' else events.membership end as membership,
    latest.stream_ordering,
    events.received_at
from latest
left join {{ ref('events') }} as events on latest.change.event_id = events.event_id
