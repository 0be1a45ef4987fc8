{{ config(materialized='affected_keys') }}
{%- set affected = ref('affected_visibility_inputs') -%}
-- Events that are read to build the visibility inputs of affected events: these events, those that they redact or replace,
-- the settings of their rooms, and the other events of their pieces of state.
with affected_events as (
    select event_id, room_id, type from {{ rows_with(source('synapse', 'events'), affected) }}
),

event_references as (
    select event_id, state_key, redacts, replaces_state from {{ ref('event_fields') }}
    where state_key is not null or redacts is not null or replaces_state is not null
),

affected_references as (
    select * from {{ rows_with('event_references', affected) }}
),

pieces as (
    select distinct events.room_id, events.type, event_references.state_key
    from affected_events as events
    inner join affected_references as event_references on events.event_id = event_references.event_id
    where event_references.state_key is not null
),

looked_up as (
    select event_id from {{ affected }}
    union
    select stack(2, redacts, replaces_state) as event_id from affected_references
    union
    select event_id from {{ source('state', 'state_intervals') }}
    where
        type in ('m.room.history_visibility', 'm.room.join_rules')
        and state_key = ''
        and room_id in (select {{ broadcast_if_few('affected_events', [affected]) }} room_id from affected_events)
),

lookups as (
    select event_id from looked_up where event_id is not null
    union
    select redacts from event_references
    where
        redacts is not null
        and event_id in (select {{ broadcast_if_few('looked_up', [affected]) }} event_id from looked_up)
    union
    select {{ broadcast_if_few('pieces', [affected]) }} state_events.event_id
    from {{ source('changes', 'previous_event_visibility_inputs') }} as state_events
    left semi join pieces
        on
            state_events.room_id = pieces.room_id
            and state_events.type = pieces.type
            and state_events.state_key = pieces.state_key
    where state_events.is_state
)

{{ loaded_events('lookups', broadcast_if_few('lookups', [affected])) }}
