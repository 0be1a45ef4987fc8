with changes as (
    select room_id, event_id, type, sender, is_state, stream_ordering, received_at
    from {{ ref('events') }}
    where not outlier and not rejected
)

select
    room_id,
    max_by(event_id, stream_ordering) as event_id,
    max_by(type, stream_ordering) as type,
    max_by(sender, stream_ordering) as sender,
    max(stream_ordering) as stream_ordering,
    max_by(received_at, stream_ordering) as received_at,
    max(case when is_state then stream_ordering end) as state_stream_ordering
from changes
group by room_id
