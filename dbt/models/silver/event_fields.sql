-- JSON is parsed here once, so that no later model has to read it again.
with event_json as (
    select
        event_json.event_id,
        event_json.internal_metadata,
        event_json.json,
        events.type,
        events.state_key
    from {{ source('synapse', 'event_json') }} as event_json
    left join {{ source('synapse', 'events') }} as events on event_json.event_id = events.event_id
)

select
    event_id,
    coalesce({{ json_boolean('internal_metadata', 'soft_failed') }}, false) as soft_failed,
    coalesce({{ json_boolean('internal_metadata', 'out_of_band_membership') }}, false) as out_of_band_membership,
    coalesce({{ json_boolean('internal_metadata', 'recheck_redaction') }}, false) as recheck_redaction,
    coalesce({{ json_boolean('internal_metadata', 'redacted') }}, false) as pruned_on_receipt,
    coalesce({{ json_boolean('internal_metadata', 'policy_server_spammy') }}, false) as policy_server_spammy,
    case when state_key is not null then get_json_object(json, '$.unsigned.replaces_state') end as replaces_state,
    case when type = 'm.room.member' then get_json_object(json, '$.content.membership') end as membership,
    case when type = 'm.room.history_visibility' and state_key = ''
        then get_json_object(json, '$.content.history_visibility')
    end as history_visibility,
    case when type = 'm.room.join_rules' and state_key = ''
        then get_json_object(json, '$.content.join_rule')
    end as join_rule,
    octet_length(json) as json_bytes
from event_json
