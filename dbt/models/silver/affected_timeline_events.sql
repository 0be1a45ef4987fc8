{{ config(materialized='affected_keys') }}
{%- set missing = source('changes', 'event_backward_extremities_changes') -%}
-- Beside the row of an event in gold.events, gold.room_timeline shows its edges, and whether it is a forward extremity or refers
-- to a backward extremity.
select event_id from {{ ref('affected_events') }}
union
select event_id from {{ source('changes', 'event_edges_changes') }}
union
select event_id from {{ source('changes', 'event_forward_extremities_changes') }}
union
select event_id from {{ source('synapse', 'event_edges') }}
where prev_event_id in (select {{ broadcast_if_few('missing', [missing]) }} event_id from {{ missing }} as missing)
