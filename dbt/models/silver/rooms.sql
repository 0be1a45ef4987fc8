with current_state as (
    select
        state.room_id,
        state.type,
        state.membership,
        -- A redacted event has lost its content, even where its JSON has not been censored yet.
        case when redactions.event_id is null then {{ readable_json('event_json.json') }} end as json,
        fields.join_rule,
        fields.history_visibility,
        case when state.type = 'm.room.create' then {{ readable_json('event_json.json') }} end as create_json
    from {{ source('synapse', 'current_state_events') }} as state
    left join {{ source('synapse', 'event_json') }} as event_json
        on state.event_id = event_json.event_id and state.state_key = '' and state.type <> 'm.room.member'
    left join {{ ref('event_fields') }} as fields on state.event_id = fields.event_id and state.state_key = ''
    left join {{ ref('redactions') }} as redactions on state.event_id = redactions.redacts and redactions.is_first
),

current_facts as (
    select
        room_id,
        max(get_json_object(create_json, '$.content.type')) as room_type,
        max(get_json_object(create_json, '$.content.predecessor.room_id')) as predecessor,
        max(case when type = 'm.room.name' then get_json_object(json, '$.content.name') end) as name,
        max(case when type = 'm.room.canonical_alias' then get_json_object(json, '$.content.alias') end)
            as canonical_alias,
        max(case when type = 'm.room.encryption' then get_json_object(json, '$.content.algorithm') end) as encryption,
        max(case when type = 'm.room.guest_access' then get_json_object(json, '$.content.guest_access') end)
            as guest_access,
        max(case when type = 'm.room.tombstone' then get_json_object(json, '$.content.replacement_room') end)
            as replacement_room,
        max(join_rule) as join_rule,
        max(history_visibility) as history_visibility,
        count(case when membership = 'join' then 1 end) as joined_members,
        count(case when membership = 'invite' then 1 end) as invited_members,
        count(case when membership = 'knock' then 1 end) as knocking_members,
        count(case when membership = 'ban' then 1 end) as banned_members
    from current_state
    group by room_id
),

local_members as (
    select room_id, count(*) as joined_local_members
    from {{ source('synapse', 'local_current_membership') }}
    where membership = 'join'
    group by room_id
)

select
    rooms.room_id,
    rooms.room_version,
    rooms.creator,
    coalesce(rooms.is_public, false) as is_public,
    blocked.room_id is not null as is_blocked,
    facts.room_type,
    facts.name,
    facts.canonical_alias,
    facts.encryption,
    facts.join_rule,
    facts.history_visibility,
    facts.guest_access,
    facts.predecessor,
    facts.replacement_room,
    coalesce(facts.joined_members, 0) as joined_members,
    coalesce(local_members.joined_local_members, 0) as joined_local_members,
    coalesce(facts.invited_members, 0) as invited_members,
    coalesce(facts.knocking_members, 0) as knocking_members,
    coalesce(facts.banned_members, 0) as banned_members
from {{ source('synapse', 'rooms') }} as rooms
left join current_facts as facts on rooms.room_id = facts.room_id
left join local_members on rooms.room_id = local_members.room_id
left join {{ source('synapse', 'blocked_rooms') }} as blocked on rooms.room_id = blocked.room_id
