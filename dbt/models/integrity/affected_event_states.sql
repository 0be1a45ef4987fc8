{{ config(materialized='affected_keys') }}
-- The state of an event is compared with the states of the events before it. The digest of a state group stands for its
-- state, so other positions do not matter.
with changed_groups as (
    select state_group from {{ source('changes', 'state_positions_changes') }}
    group by state_group, room_id, state_rows, digest
    having count(distinct _change_type) < 2
),

changed as (
    select event_id from {{ ref('affected_events') }}
    union
    select event_id from {{ source('synapse', 'event_to_state_groups') }}
    where state_group in (select state_group from changed_groups)
),

affected as (
    select event_id from changed
    union
    select event_id from {{ source('changes', 'event_edges_changes') }}
    union
    select event_id from {{ source('changes', 'event_auth_changes') }}
    union
    select event_id from {{ source('synapse', 'event_edges') }} where prev_event_id in (select event_id from changed)
)

select {{ value_hash('event_id') }} as event_hash, {{ value_hash('prev_event_id') }} as previous_hash
from {{ source('synapse', 'event_edges') }}
where event_id in (select event_id from affected)
union
select {{ value_hash('event_id') }} as event_hash, cast(null as bigint) as previous_hash from affected
