{{ config(materialized='affected_keys') }}
{%- set changed = ref('changed_event_states') -%}
{%- set rows_of_events = [
    source('changes', 'event_edges_changes'), source('changes', 'event_auth_changes'), source('changes', 'room_memberships_changes'),
] -%}
-- The state of an event is compared with the states of the events before it. Its other rows are compared with its JSON.
with affected as (
    select event_id from {{ changed }}
    union
    {%- for rows in rows_of_events %}
    select event_id from {{ rows }}
    union
    {%- endfor %}
    select event_id from {{ source('synapse', 'event_edges') }} where prev_event_id in (select event_id from {{ changed }})
)

select {{ value_hash('event_id') }} as event_hash, {{ value_hash('prev_event_id') }} as previous_hash
from {{ source('synapse', 'event_edges') }}
where event_id in (select {{ broadcast_if_few('affected', [changed] + rows_of_events) }} event_id from affected)
union
select {{ value_hash('event_id') }} as event_hash, cast(null as bigint) as previous_hash from affected
