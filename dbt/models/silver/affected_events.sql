{{ config(materialized='affected_keys') }}
-- Beside the rows of an event, gold.events shows its relation, its redactions, and whether it is current state.
select event_id from {{ ref('changed_events') }}
union
select event_id from {{ source('changes', 'event_relations_changes') }}
union
select event_id from {{ source('changes', 'redactions_changes') }}
union
select redacts from {{ ref('affected_redactions') }}
union
select event_id from {{ source('changes', 'current_state_events_changes') }}
group by event_id
having count(distinct _change_type) < 2
