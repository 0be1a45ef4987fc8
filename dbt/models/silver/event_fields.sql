{{ config(increment_by='event_id') }}
-- JSON is parsed here once, so that no later model has to read it again.
with stored as (
    select event_id, internal_metadata, format_version, json as stored, {{ readable_json('json') }} as json
    from {{ each_row_of(source('synapse', 'event_json')) }}
),

event_json as (
    select
        event_json.event_id,
        event_json.internal_metadata,
        event_json.stored,
        -- Rooms of these versions take integers of any length, and Spark reads no JSON with one of over 1,000 digits.
        case
            when rooms.room_version in ('1', '2', '3', '4', '5') and length(event_json.json) > 1000
                then regexp_replace(event_json.json, '[0-9]{300,}', '0')
            else event_json.json
        end as json,
        event_json.format_version,
        events.type,
        coalesce(events.state_key, get_json_object(event_json.json, '$.state_key')) as state_key,
        rooms.room_version
    from stored as event_json
    left join {{ each_row_of(source('synapse', 'events')) }} as events on event_json.event_id = events.event_id
    left join {{ source('synapse', 'rooms') }} as rooms on events.room_id = rooms.room_id
)

select
    event_id,
    format_version,
    state_key,
    coalesce({{ json_boolean('internal_metadata', 'soft_failed') }}, false) as soft_failed,
    coalesce({{ json_boolean('internal_metadata', 'out_of_band_membership') }}, false) as out_of_band_membership,
    coalesce({{ json_boolean('internal_metadata', 'recheck_redaction') }}, false) as recheck_redaction,
    coalesce({{ json_boolean('internal_metadata', 'redacted') }}, false) as pruned_on_receipt,
    coalesce({{ json_boolean('internal_metadata', 'policy_server_spammy') }}, false) as policy_server_spammy,
    case when state_key is not null then get_json_object(json, '$.unsigned.replaces_state') end as replaces_state,
    -- Events of other servers, and of old, may bring along what they replace.
    case when state_key is not null then get_json_object(json, '$.unsigned.prev_content.membership') end
        as told_membership,
    case when state_key is not null then get_json_object(json, '$.unsigned.prev_content.history_visibility') end
        as told_visibility,
    state_key is not null
    and get_json_object(json, '$.unsigned.prev_content') is not null
    and get_json_object(json, '$.unsigned.prev_sender') is not null as tells_replaced,
    case when type = 'm.room.member' and state_key is not null
        then get_json_object(json, '$.content.membership')
    end as membership,
    case when type = 'm.room.history_visibility' and state_key is not null
        then get_json_object(json, '$.content.history_visibility')
    end as history_visibility,
    case when type = 'm.room.join_rules' and state_key = ''
        then get_json_object(json, '$.content.join_rule')
    end as join_rule,
    -- Rooms of version 11 and later have moved it into the content.
    case
        when type <> 'm.room.redaction' then null
        when
            room_version in ('1', '2', '3', '4', '5', '6', '7', '8', '9', '10')
            or room_version in ('org.matrix.msc1767.10', 'org.matrix.msc3757.10')
            then get_json_object(json, '$.redacts')
        else get_json_object(json, '$.content.redacts')
    end as redacts,
    octet_length(stored) as json_bytes,
    sha2(stored, 256) as json_sha256
from event_json
