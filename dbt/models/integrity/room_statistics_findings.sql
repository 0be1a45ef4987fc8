{%- set counted = {
    'current_state_events': 'true',
    'joined_members': "membership = 'join'",
    'invited_members': "membership = 'invite'",
    'left_members': "membership = 'leave'",
    'banned_members': "membership = 'ban'",
    'knocked_members': "membership = 'knock'",
    'local_users_in_room': "membership = 'join' and " ~ server_name('state_key') ~ " = '" ~ var('server_name') ~ "'",
} -%}
{%- set properties = {
    'join_rules': ('m.room.join_rules', 'join_rule'),
    'history_visibility': ('m.room.history_visibility', 'history_visibility'),
    'encryption': ('m.room.encryption', 'encryption'),
    'room_type': ('m.room.create', 'room_type'),
} -%}
{%- set removed = {'current_state_events': 'removed', 'left_members': 'removed_members'} -%}
with changes as (
    select
        room_id,
        max(stream_id) as last_change,
        count_if(event_id is null) as removed,
        count_if(event_id is null and type = 'm.room.member') as removed_members
    from {{ source('synapse', 'current_state_delta_stream') }}
    group by room_id
),

recounts as (
    select
        room_id,
        {%- for number, condition in counted.items() %}
        count_if({{ condition }}) as {{ number }}{{ "," if not loop.last }}
        {%- endfor %}
    from {{ source('synapse', 'current_state_events') }}
    group by room_id
),

-- Statistics that Synapse has not updated yet are omitted.
updated as (
    select stats.*
    from {{ source('synapse', 'room_stats_current') }} as stats
    left semi join {{ source('synapse', 'rooms') }} as rooms on stats.room_id = rooms.room_id
    left join changes on stats.room_id = changes.room_id
    where stats.completed_delta_stream_id >= coalesce(changes.last_change, stats.completed_delta_stream_id)
),

-- Synapse ignores the state key of these changes (_handle_deltas), so an event with a state key can set a property.
with_state_key as (
    select distinct room_id, type from {{ source('synapse', 'current_state_delta_stream') }} where state_key <> ''
)

-- `slack`: the allowed excess. Synapse continues to count removed pieces of state, and former members as users that left.
-- For a room that was purged before the last changes were counted, Synapse creates a new row that no client sees.
select
    'room_statistics' as check_name,
    'warn' as severity,
    stats.room_id,
    number.name as subject,
    string(number.counted) as expected,
    string(number.stored) as found
from updated as stats
left join recounts on stats.room_id = recounts.room_id
left join changes on stats.room_id = changes.room_id
cross join lateral inline(array(
    {%- for number in counted %}
    named_struct(
        'name', '{{ number }}',
        'stored', stats.{{ number }},
        'counted', coalesce(recounts.{{ number }}, 0),
        'slack', {{ 'coalesce(changes.' ~ removed[number] ~ ', 0)' if number in removed else '0L' }}
    ){{ "," if not loop.last }}
    {%- endfor %}
)) as number
where number.stored < number.counted or number.stored > number.counted + number.slack
union all
-- Synapse does not compute a property again after a redaction of its event. Then the current state has no value.
select
    'room_statistics',
    'warn',
    properties.room_id,
    property.name,
    'the value in the current state',
    if(property.stored is null, 'NULL', 'another value')
from {{ source('synapse', 'room_stats_state') }} as properties
inner join updated on properties.room_id = updated.room_id
inner join {{ ref('rooms') }} as rooms on properties.room_id = rooms.room_id
cross join lateral inline(array(
    {%- for property, (type, column) in properties.items() %}
    named_struct(
        'name', '{{ property }}', 'type', '{{ type }}', 'stored', properties.{{ property }}, 'current', rooms.{{ column }}
    ){{ "," if not loop.last }}
    {%- endfor %}
)) as property
left anti join with_state_key on properties.room_id = with_state_key.room_id and property.type = with_state_key.type
where
    property.current is not null
    and property.stored is distinct from property.current
