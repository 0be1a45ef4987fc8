-- Synapse purges a room up to the depth of the latest event that is old enough, by its time of receipt. This model does the same.
with expired as (
    select
        events.room_id,
        events.event_id,
        events.received_ts,
        events.stream_ordering,
        events.topological_ordering,
        max_by(events.topological_ordering, events.stream_ordering) over (partition by events.room_id) as purged_up_to
    from {{ ref('event_visibility_inputs') }} as visibility_inputs
    inner join {{ ref('events') }} as events on visibility_inputs.event_id = events.event_id
    cross join {{ ref('retention_time') }} as as_of
    where
        visibility_inputs.expires_at is not null
        and {{ overdue_at('visibility_inputs', 'events') }} < as_of.as_of
)

select
    'retention_overdue' as check_name,
    'warn' as severity,
    room_id,
    min_by(event_id, received_ts) as subject,
    'to be purged' as expected,
    count(*) || ' events' as found
from expired
where topological_ordering < purged_up_to
group by room_id
