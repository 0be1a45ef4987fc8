-- Room names and other properties as in Synapse's own statistics: a value that is no text or contains a NUL is absent.
with properties as (
    select
        state.room_id,
        state.type,
        fields.room_property as value,
        fields.predecessor,
        redactions.event_id is not null as is_redacted
    from {{ source('synapse', 'current_state_events') }} as state
    inner join {{ ref('event_fields') }} as fields on state.event_id = fields.event_id
    left join {{ ref('redactions') }} as redactions on state.event_id = redactions.redacts and redactions.is_first
    left join {{ source('synapse', 'rejections') }} as rejections on state.event_id = rejections.event_id
    where
        state.state_key = ''
        and coalesce(rejections.reason, '') = ''
        and state.type in (
            'm.room.create', 'm.room.name', 'm.room.canonical_alias', 'm.room.encryption', 'm.room.guest_access',
            'm.room.tombstone', 'm.room.join_rules', 'm.room.history_visibility'
        )
),

-- A redacted event has no content, even if its JSON is not censored yet. These three types retain the needed content.
retained_properties as (
    select room_id, type, value, predecessor
    from properties
    where not is_redacted or type in ('m.room.create', 'm.room.join_rules', 'm.room.history_visibility')
),

current_properties as (
    select
        room_id,
        max(predecessor) as predecessor,
        max(case when type = 'm.room.create' then value end) as room_type,
        max(case when type = 'm.room.name' then value end) as name,
        max(case when type = 'm.room.canonical_alias' then value end) as canonical_alias,
        max(case when type = 'm.room.encryption' then value end) as encryption,
        max(case when type = 'm.room.guest_access' then value end) as guest_access,
        max(case when type = 'm.room.tombstone' then value end) as replacement_room,
        max(case when type = 'm.room.join_rules' then value end) as join_rule,
        max(case when type = 'm.room.history_visibility' then value end) as history_visibility
    from retained_properties
    group by room_id
),

members as (
    select
        room_id,
        count(case when membership = 'join' then 1 end) as joined_members,
        count(case when membership = 'invite' then 1 end) as invited_members,
        count(case when membership = 'knock' then 1 end) as knocking_members,
        count(case when membership = 'ban' then 1 end) as banned_members
    from {{ source('synapse', 'current_state_events') }}
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
    properties.room_type,
    properties.name,
    properties.canonical_alias,
    properties.encryption,
    properties.join_rule,
    properties.history_visibility,
    properties.guest_access,
    properties.predecessor,
    properties.replacement_room,
    coalesce(members.joined_members, 0) as joined_members,
    coalesce(local_members.joined_local_members, 0) as joined_local_members,
    coalesce(members.invited_members, 0) as invited_members,
    coalesce(members.knocking_members, 0) as knocking_members,
    coalesce(members.banned_members, 0) as banned_members
from {{ source('synapse', 'rooms') }} as rooms
left join current_properties as properties on rooms.room_id = properties.room_id
left join members on rooms.room_id = members.room_id
left join local_members on rooms.room_id = local_members.room_id
left join {{ source('synapse', 'blocked_rooms') }} as blocked on rooms.room_id = blocked.room_id
