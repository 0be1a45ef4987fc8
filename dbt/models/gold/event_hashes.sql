-- Hashing takes Python, so only what was not judged before is handed to it: JSON that is new, changed, or of other rules.
with stored as (
    select events.event_id, events.room_id, rooms.room_version, fields.json_sha256
    from {{ source('synapse', 'events') }} as events
    left join {{ ref('event_fields') }} as fields on events.event_id = fields.event_id
    left join {{ source('synapse', 'rooms') }} as rooms on events.room_id = rooms.room_id
),

compared as (
    select stored.*, known.event_id is not null as is_known, known.verdict, known.reason
    from stored
    left join {{ this }} as known
        on
            stored.event_id = known.event_id
            and stored.room_id = known.room_id
            and stored.room_version <=> known.room_version
            and stored.json_sha256 <=> known.json_sha256
            and known.rules = '{{ var("rules_of_hashes") }}'
),

judged as (
    select
        compared.event_id,
        compared.room_id,
        compared.room_version,
        compared.json_sha256,
        judge_event(
            compared.event_id,
            compared.room_id,
            event_json.json,
            compared.room_version,
            event_json.format_version
        ) as judgement
    from compared
    left join {{ source('synapse', 'event_json') }} as event_json on compared.event_id = event_json.event_id
    where not compared.is_known
)

select event_id, room_id, room_version, verdict, reason, json_sha256, '{{ var("rules_of_hashes") }}' as rules
from compared
where is_known

union all

select
    event_id,
    room_id,
    room_version,
    judgement.verdict,
    judgement.reason,
    json_sha256,
    '{{ var("rules_of_hashes") }}' as rules
from judged
