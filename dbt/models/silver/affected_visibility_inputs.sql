{{ config(materialized='affected_keys') }}
{%- set changed, moved_positions = ref('changed_events'), source('changes', 'state_positions_changes') -%}
{%- set is_setting = "type in ('m.room.history_visibility', 'm.room.join_rules') and state_key = ''" -%}
-- The inputs of an event follow from its own rows, from events that it names or that name it, from its position among the
-- state groups, and from the settings that are valid there. More events than necessary do no harm.
with event_references as (
    select event_id, state_key, redacts, replaces_state from {{ ref('event_fields') }}
    where state_key is not null or redacts is not null or replaces_state is not null
),

previous_state_events as (
    select event_id, room_id, type, state_key from {{ source('changes', 'previous_event_visibility_inputs') }}
    where is_state
),

-- The target of a redaction decides whether the redaction is withheld.
loaded as (
    select event_id from {{ changed }}
    union
    select event_id from event_references where redacts in (select event_id from {{ changed }})
),

-- State events that replace a loaded event, and events whose redactions changed.
related as (
    select event_id from loaded
    union
    select event_id from {{ rows_with('event_references', 'loaded', 'replaces_state', 'event_id', broadcast_if_few('loaded', [changed])) }}
    union
    select redacts from {{ ref('affected_redactions') }}
),

-- Pieces of state with a changed event. The first event of a piece replaces nothing, and a change may make another event the
-- first.
pieces as (
    select room_id, type, state_key from previous_state_events
    where event_id in (select event_id from {{ changed }})
    union
    select events.room_id, events.type, event_references.state_key
    from {{ rows_with(source('synapse', 'events'), changed) }} as events
    inner join {{ rows_with('event_references', changed) }} as event_references on events.event_id = event_references.event_id
    where event_references.state_key is not null
),

moved_groups as (
    select state_group from {{ moved_positions }}
    group by state_group, position, room_id
    having count(distinct _change_type) < 2
    union
    select state_group from {{ source('changes', 'state_faults_changes') }} where fault = 'cycle'
    group by state_group
    having count(distinct _change_type) < 2
),

settings as (
    select * from {{ source('state', 'state_intervals') }} where {{ is_setting }}
),

previous_settings as (
    select * from {{ source('changes', 'previous_state_intervals') }} where {{ is_setting }}
),

previous_ends as (
    select room_id, max(position) as position from {{ source('changes', 'previous_state_positions') }} group by room_id
),

-- Rooms with other settings at a position that the last release has, or with another retention. The last interval of a room grows
-- with each new position. This growth changes no earlier position.
changed_rooms as (
    select previous.room_id from previous_settings as previous
    left anti join settings as present
        on
            previous.room_id = present.room_id
            and previous.type = present.type
            and previous.event_id = present.event_id
            and present.first_position <= previous.first_position
            and present.last_position >= previous.last_position
    union
    select present.room_id
    from (
        select settings.*, least(settings.last_position, previous_ends.position) as previous_last_position
        from settings
        inner join previous_ends
            on settings.room_id = previous_ends.room_id and settings.first_position <= previous_ends.position
    ) as present
    left anti join previous_settings as previous
        on
            present.room_id = previous.room_id
            and present.type = previous.type
            and present.event_id = previous.event_id
            and previous.first_position <= present.first_position
            and previous.last_position >= present.previous_last_position
    union
    select room_id from {{ source('changes', 'room_retention_changes') }}
    union
    select room_id from {{ source('synapse', 'room_retention') }}
    where event_id in (select event_id from {{ source('changes', 'current_state_events_changes') }})
),

changed_settings as (
    select room_id, first_position, last_position
    from {{ rows_with('settings', 'loaded', hint=broadcast_if_few('loaded', [changed])) }}
),

erased as (
    select user_id from {{ source('changes', 'erased_users_changes') }}
)

select event_id from related where event_id is not null
union
select {{ broadcast_if_few('pieces', [changed]) }} state_events.event_id
from previous_state_events as state_events
left semi join pieces
    on
        state_events.room_id = pieces.room_id
        and state_events.type = pieces.type
        and state_events.state_key = pieces.state_key
union
select event_id from {{ source('synapse', 'event_to_state_groups') }}
where state_group in (select {{ broadcast_if_few('moved_groups', [moved_positions], 4000000) }} state_group from moved_groups)
union
-- An outlier has no position, but may have a state group.
select {{ broadcast_if_few('changed_settings', [changed]) }} events.event_id
from {{ source('changes', 'previous_event_visibility_inputs') }} as events
left semi join changed_settings
    on
        events.room_id = changed_settings.room_id
        and (events.outlier or events.position between changed_settings.first_position and changed_settings.last_position)
union
-- A later release of Synapse has another rule for call invites.
select event_id from {{ source('changes', 'previous_event_visibility_inputs') }}
where type = 'm.call.invite' and {{ has_rule('hidden_call_invites', source('changes', 'applied_schema_deltas_changes')) }}
union
select event_id from {{ source('changes', 'previous_event_visibility_inputs') }}
where
    room_id in (select {{ broadcast_if_few('changed_rooms', [source('synapse', 'rooms')]) }} room_id from changed_rooms)
    or sender in (select user_id from erased)
