with changes as (
    select
        memberships.user_id,
        memberships.room_id,
        memberships.event_id,
        memberships.sender,
        memberships.membership,
        events.stream_ordering,
        events.received_at
    from {{ source('synapse', 'room_memberships') }} as memberships
    inner join {{ ref('events') }} as events on memberships.event_id = events.event_id
    where not events.rejected
)

select
    user_id,
    {{ is_local('user_id') }} as is_local,
    max_by(room_id, stream_ordering) as room_id,
    max_by(event_id, stream_ordering) as event_id,
    max_by(sender, stream_ordering) as sender,
    max_by(membership, stream_ordering) as membership,
    max(stream_ordering) as stream_ordering,
    max_by(received_at, stream_ordering) as received_at
from changes
group by user_id
