{{ config(meta={'affected_by': 'affected_event_fields'}) }}
{%- set affected = ref('affected_event_fields') -%}
{%- set is_partial = is_partial_build(affected) %}
-- Only this model loads events as Synapse does, by the rules of {{ var('rules_of_events') }}.
with stored_json as (
    {%- if is_partial %}
    {%- set changes = source('changes', 'event_json_changes') %}
    -- Nearly all affected events are new. The JSON of all other events, by far the largest column, is mostly not read.
    select event_id, format_version, json, internal_metadata from {{ changes }} where _change_type = 'INSERT'
    union all
    select event_id, format_version, json, internal_metadata from {{ source('synapse', 'event_json') }}
    where event_id in (
        select event_id from {{ affected }} as affected
        where not exists (
            select 1 from {{ changes }} as changes
            where changes.event_id = affected.event_id and changes._change_type = 'INSERT'
        )
    )
    {%- else %}
    select event_id, format_version, json, internal_metadata from {{ source('synapse', 'event_json') }}
    {%- endif %}
),

loaded as (
    select
        event_json.event_id,
        event_json.format_version,
        event_json.json,
        events.state_key,
        load_event(
            event_json.event_id,
            events.room_id,
            event_json.json,
            event_json.internal_metadata,
            event_json.format_version,
            rooms.room_version
        ) as event
    from stored_json as event_json
    left join {{ rows_with(source('synapse', 'events'), affected if is_partial else none) }} as events on event_json.event_id = events.event_id
    left join {{ source('synapse', 'rooms') }} as rooms on events.room_id = rooms.room_id
)

select
    event_id,
    format_version,
    event.unloadable,
    case when event.unloadable is null then event.state_key else state_key end as state_key,
    event.soft_failed,
    event.out_of_band_membership,
    event.recheck_redaction,
    event.pruned_on_receipt,
    event.policy_server_spammy,
    event.replaces_state,
    -- Old events and events of other servers may contain the replaced content.
    event.prev_membership as prev_content_membership,
    event.prev_visibility as prev_content_history_visibility,
    event.has_prev_content as has_prev_content_and_sender,
    event.membership,
    event.history_visibility,
    event.join_rule,
    event.room_property,
    event.predecessor,
    event.redacts,
    event.prev_events,
    event.auth_events,
    event.hash_verdict,
    event.hash_reason,
    octet_length(json) as json_bytes,
    sha2(json, 256) as json_sha256
from loaded
