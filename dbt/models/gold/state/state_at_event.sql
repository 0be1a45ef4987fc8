{{ config(materialized='view') }}
-- The answer of federation's /state differs from the state after an event only in the event's own piece of state.
select
    event.room_id,
    event.event_id,
    state.type,
    state.state_key,
    state.event_id as after_event_id,
    state.event_id as before_event_id,
    true as before_is_known
from {{ ref('event_visibility_inputs') }} as event
inner join {{ source('state', 'state_intervals') }} as state
    on
        event.room_id = state.room_id
        and event.position >= state.first_position
        and event.position <= state.last_position
where not event.is_state or event.type <> state.type or event.state_key <> state.state_key

union all

select
    event.room_id,
    event.event_id,
    event.type,
    event.state_key,
    state.event_id as after_event_id,
    event.replaces_state as before_event_id,
    event.replaced_is_known as before_is_known
from {{ ref('event_visibility_inputs') }} as event
left join {{ source('state', 'state_intervals') }} as state
    on
        event.room_id = state.room_id
        and event.type = state.type
        and event.state_key = state.state_key
        and event.position >= state.first_position
        and event.position <= state.last_position
where
    event.is_state
    and event.position >= 0
    and (state.event_id is not null or event.replaces_state is not null or not event.replaced_is_known)
