{{ config(materialized='affected_keys') }}
-- Events of which a row changed: their own, their JSON, their rejection, or their place in the room.
select event_id from {{ ref('affected_event_fields') }}
{%- for table in [
    'events', 'rejections', 'event_to_state_groups', 'ex_outlier_stream', 'partial_state_events',
    'un_partial_stated_event_stream',
] %}
union
select event_id from {{ source('changes', table ~ '_changes') }}
{%- endfor %}
