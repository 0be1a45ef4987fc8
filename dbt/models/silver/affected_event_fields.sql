{{ config(materialized='affected_keys') }}
-- The fields of an event follow from its JSON, its row, and its room's version.
with changed_events as (
    select event_id from {{ source('changes', 'events_changes') }}
    group by event_id, room_id, state_key
    having count(distinct _change_type) < 2
),

changed_rooms as (
    select room_id from {{ source('changes', 'rooms_changes') }}
    group by room_id, room_version
    having count(distinct _change_type) < 2
)

select event_id from {{ source('changes', 'event_json_changes') }}
union
select event_id from changed_events
union
select event_id from {{ source('synapse', 'events') }} where room_id in (select room_id from changed_rooms)
