-- Above 10, Synapse sends dummy events to join them; an event can refer to at most 20.
select
    'forward_extremities' as check_name,
    case when count(*) > 20 then 'warn' else 'info' end as severity,
    room_id,
    room_id as subject,
    'at most 10' as expected,
    string(count(*)) as found
from {{ source('synapse', 'event_forward_extremities') }}
group by room_id
having count(*) > 10
