{{ config(meta={'affected_by': 'affected_event_fields'}) }}
{%- set affected = ref('affected_event_fields') -%}
{%- set built = affected if is_partial_build(affected) else none %}
select
    events.event_id,
    events.room_id,
    rooms.room_version,
    coalesce(fields.hash_verdict, 'no_json') as verdict,
    fields.hash_reason as reason,
    fields.json_sha256,
    '{{ var("rules_of_events") }}' as rules
from {{ rows_with(source('synapse', 'events'), built) }} as events
left join {{ rows_with(ref('event_fields'), built) }} as fields on events.event_id = fields.event_id
left join {{ source('synapse', 'rooms') }} as rooms on events.room_id = rooms.room_id
