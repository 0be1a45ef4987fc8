{{ config(materialized='affected_keys') }}
{%- set changed = ref('changed_events') -%}
-- Targets of which a redaction may have changed: its row, its event, its target, or the ban that redacts the target.
with changed_bans as (
    select room_id, user_id from {{ source('changes', 'room_ban_redactions_changes') }}
    union
    select room_id, user_id from {{ source('synapse', 'room_ban_redactions') }}
    where redacting_event_id in (select event_id from {{ changed }})
),

events as (
    select event_id, room_id, sender from {{ source('synapse', 'events') }}
)

select redacts from {{ source('changes', 'redactions_changes') }}
{%- for redactions in [source('synapse', 'redactions'), source('changes', 'previous_redactions')] %}
union
select redacts from {{ redactions }}
where
    event_id in (select event_id from {{ changed }})
    or redacts in (select event_id from {{ changed }})
{%- endfor %}
union
select events.event_id from events
left semi join changed_bans on events.room_id = changed_bans.room_id and events.sender = changed_bans.user_id
union
select events.event_id from {{ rows_with('events', changed) }} as events
left semi join {{ source('synapse', 'room_ban_redactions') }} as bans
    on events.room_id = bans.room_id and events.sender = bans.user_id
