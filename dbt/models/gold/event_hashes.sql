select
    events.event_id,
    events.room_id,
    rooms.room_version,
    coalesce(fields.hash_verdict, 'no_json') as verdict,
    fields.hash_reason as reason,
    fields.json_sha256,
    '{{ var("rules_of_events") }}' as rules
from {{ source('synapse', 'events') }} as events
left join {{ ref('event_fields') }} as fields on events.event_id = fields.event_id
left join {{ source('synapse', 'rooms') }} as rooms on events.room_id = rooms.room_id
