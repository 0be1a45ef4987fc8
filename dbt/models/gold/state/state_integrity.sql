-- Each branch is one check. docs/runbooks/integrity.md describes them.
with lives as (
    -- A room that was left or purged and joined again starts a new history: earlier deltas no longer count.
    select room_id, max(stream_id) as began_at
    from {{ source('synapse', 'current_state_delta_stream') }}
    where type = 'm.room.create' and state_key = '' and event_id is not null
    group by room_id
),

delta as (
    select deltas.room_id, deltas.type, deltas.state_key, max_by(deltas.event_id, deltas.stream_id) as event_id
    from {{ source('synapse', 'current_state_delta_stream') }} as deltas
    left join lives on deltas.room_id = lives.room_id
    where deltas.stream_id >= coalesce(lives.began_at, deltas.stream_id)
    group by deltas.room_id, deltas.type, deltas.state_key
),

compared as (
    select
        coalesce(current_piece.room_id, delta.room_id) as room_id,
        replace(replace(coalesce(current_piece.type, delta.type), '%', '%25'), ' ', '%20')
        || ' ' || coalesce(current_piece.state_key, delta.state_key) as subject,
        delta.event_id as delta_event_id,
        current_piece.event_id as current_event_id,
        delta.room_id is not null as has_delta
    from delta
    full outer join {{ source('synapse', 'current_state_events') }} as current_piece
        on delta.room_id = current_piece.room_id and delta.type = current_piece.type and delta.state_key = current_piece.state_key
),

-- A purge removes events from the current state too. Rooms older than the deltas lack the deltas of their first state.
current_state as (
    select
        compared.*,
        case
            when compared.current_event_id is not null and events.event_id is null then 'current_state_without_event'
            when compared.has_delta and compared.delta_event_id is distinct from compared.current_event_id
                and events.event_id is not null then 'state_reset'
            when not compared.has_delta and lives.began_at is not null then 'state_reset'
        end as check_name
    from compared
    left join lives on compared.room_id = lives.room_id
    left join {{ source('synapse', 'events') }} as events on coalesce(compared.current_event_id, compared.delta_event_id) = events.event_id
),

stray_rows as (
    select state_rows.state_group, max(state_rows.room_id) as room_id, count(*) as number_of_rows
    from (
        select state_group, room_id from {{ source('synapse', 'state_groups_state') }}
        union all
        select state_group, cast(null as string) from {{ source('synapse', 'state_group_edges') }}
    ) as state_rows
    left anti join {{ source('synapse', 'state_groups') }} as state_groups on state_rows.state_group = state_groups.id
    group by state_rows.state_group
),

-- The next group in the order of positions, itself included, that is the state of an event: a group is unused if this
-- group is not among its descendants.
needs as (
    select
        sizes.room_id,
        sizes.state_group,
        positions.last_position,
        min(case when sizes.events > 0 then sizes.position end) over (
            partition by sizes.room_id
            order by sizes.position desc rows between unbounded preceding and current row
        ) as next_used
    from {{ ref('state_group_sizes') }} as sizes
    inner join {{ source('state', 'state_positions') }} as positions
        on sizes.room_id = positions.room_id and sizes.state_group = positions.state_group
),

numbers as (
    {{ room_statistics() }}
),

json_alone as (
    select fields.event_id, fields.room_id
    from {{ source('synapse', 'event_json') }} as fields
    left anti join {{ source('synapse', 'events') }} as events on fields.event_id = events.event_id
),

-- Each event that is no outlier has a state group, and no outlier has one. A forward extremity, and an event to which an
-- event that is no outlier refers, is no outlier, unless it is a backward extremity.
not_outliers as (
    select event_id from {{ source('synapse', 'event_to_state_groups') }}
    union all
    select event_id from {{ source('synapse', 'event_forward_extremities') }}
    union all
    select edges.prev_event_id
    from {{ source('synapse', 'event_edges') }} as edges
    inner join {{ source('synapse', 'events') }} as events on edges.event_id = events.event_id
    left anti join {{ source('synapse', 'event_backward_extremities') }} as extremities
        on edges.prev_event_id = extremities.event_id
    where not events.outlier
),

known_ids as (
    select event_id, event_stream_ordering as known_id from {{ source('synapse', 'room_memberships') }}
    union all
    select event_id, event_stream_ordering from {{ source('synapse', 'local_current_membership') }}
    union all
    select event_id, event_stream_ordering from {{ source('synapse', 'current_state_events') }}
),

lost_events as (
    select json_alone.event_id, json_alone.room_id, max(known_ids.known_id) as known_id
    from json_alone
    left semi join not_outliers on json_alone.event_id = not_outliers.event_id
    left join known_ids on json_alone.event_id = known_ids.event_id
    group by json_alone.event_id, json_alone.room_id
),

-- Rows of event_edges may be missing with those of events: the JSON names the parents too.
lost_json as (
    select
        lost_events.event_id,
        lost_events.room_id,
        get_json_object(fields.json, '$.sender') as sender,
        get_json_object(fields.json, '$.type') as type,
        get_json_object(fields.json, '$.prev_events') as parents
    from {{ source('synapse', 'event_json') }} as fields
    inner join lost_events on fields.event_id = lost_events.event_id
),

lost_edges as (
    select lost_events.room_id, edges.event_id as child, edges.prev_event_id as parent
    from {{ source('synapse', 'event_edges') }} as edges
    inner join lost_events on edges.prev_event_id = lost_events.event_id
    union
    select room_id, event_id, explode(from_json(parents, 'array<string>')) from lost_json
),

-- An event of this server that was purged and fetched again has a negative ID, so a lost event may have had one too.
backfilled as (
    select distinct room_id from {{ source('synapse', 'events') }} where stream_ordering < 0
),

-- Only if this server created the child, its first ID is above that of its parent (streams/gaps/lost_event_ranges.py).
-- For a join, a knock and a rejected invite, another server chooses the parents, which may arrive later. Former outliers
-- were fetched from other servers too.
lost_graphs as (
    select
        edges.room_id,
        collect_list(
            struct(edges.child, edges.parent, later.stream_ordering as child_id, earlier.stream_ordering as parent_id)
        ) as edges
    from lost_edges as edges
    left join {{ source('synapse', 'events') }} as later on edges.child = later.event_id
    left join {{ source('synapse', 'events') }} as earlier on edges.parent = earlier.event_id
    left join lost_json on edges.child = lost_json.event_id
    left join backfilled on edges.room_id = backfilled.room_id
    left anti join {{ source('synapse', 'ex_outlier_stream') }} as former_outliers on edges.child = former_outliers.event_id
    where
        {{ server_name('coalesce(later.sender, lost_json.sender)') }} = '{{ var('server_name') }}'
        and coalesce(later.type, lost_json.type, '') <> 'm.room.member'
        and if(later.event_id is null, backfilled.room_id is null, later.stream_ordering > 0 and not later.outlier)
    group by edges.room_id
),

lost_ranges as (
    select rooms.room_id, inline(lost_event_ranges(rooms.lost, lost_graphs.edges)) as (event_id, first_id, last_id)
    from (
        select room_id, collect_list(struct(event_id, known_id)) as lost from lost_events group by room_id
    ) as rooms
    left join lost_graphs on rooms.room_id = lost_graphs.room_id
),

lost as (
    {{ missing_state() }}
)

{%- if var('retention_enabled') %},

-- As in Synapse's purge: by the time of receipt, up to the depth of the room's latest event that is old enough.
expired as (
    select
        events.room_id,
        events.event_id,
        events.received_ts,
        events.stream_ordering,
        events.topological_ordering,
        max_by(events.topological_ordering, events.stream_ordering) over (partition by events.room_id) as purged_up_to
    from {{ ref('event_visibility_inputs') }} as visibility_inputs
    inner join {{ ref('events') }} as events on visibility_inputs.event_id = events.event_id
    cross join {{ ref('retention_time') }} as as_of
    where
        visibility_inputs.expires_at is not null
        and {{ overdue_at('visibility_inputs', 'events') }} < as_of.as_of
)
{%- endif %}

select
    check_name,
    'fail' as severity,
    room_id,
    case check_name when 'state_reset' then subject else current_event_id end as subject,
    case check_name when 'state_reset' then coalesce(delta_event_id, 'nothing') else 'an event that is stored' end as expected,
    case check_name when 'state_reset' then coalesce(current_event_id, 'nothing') else 'no event' end as found
from current_state
where check_name is not null

union all

select 'event_without_json', 'fail', room_id, event_id, 'a row of event_json', 'none'
from {{ ref('events') }}
where json_bytes is null

union all

select
    'event_lost',
    if(
        hex(room_id) in ('no room'{% for room in var('acknowledged_rooms') %}, '{{ room | upper }}'{% endfor %}),
        'info', 'fail'
    ),
    room_id,
    event_id,
    'a row of events with a stream ID '
    || case
        when first_id is null and last_id is null then 'that nothing bounds'
        when last_id is null then 'from ' || first_id || ' on'
        when first_id is null then 'up to ' || last_id
        else 'from ' || first_id || ' to ' || last_id
    end,
    'its JSON alone'
from lost_ranges

union all

select 'json_without_event', 'warn', json_alone.room_id, json_alone.event_id, 'a row of events', 'none'
from json_alone
left anti join lost_events on json_alone.event_id = lost_events.event_id

union all

-- Synapse does not load unreadable events and those with another ID (synapse.storage.databases.main.events_worker).
select
    'event_altered',
    case when reason in ('event_id', 'not_an_event') then 'fail' else 'warn' end,
    room_id,
    event_id,
    'the JSON that its id and its hash stand for',
    reason
from {{ ref('event_hashes') }}
where verdict = 'altered'

union all

-- Events in rooms of unknown versions are legal: Synapse omits them.
select 'event_unloadable', 'fail', room_id, event_id, 'an event that Synapse can load', unloadable
from {{ ref('events') }}
where json_bytes is not null and unloadable <> 'room_version_unknown'

union all

select 'event_without_state_group', 'fail', room_id, event_id, 'a state group', 'none'
from {{ ref('events') }}
where not outlier and state_group is null

union all

select
    'state_group_missing',
    'fail',
    max(events.room_id),
    string(events.state_group),
    'a row of state_groups',
    'none, and ' || count(*) || ' events whose state it is'
from {{ ref('events') }} as events
left anti join {{ source('synapse', 'state_groups') }} as state_groups on events.state_group = state_groups.id
where events.state_group is not null
group by events.state_group

union all

select
    'state_group_incomplete',
    'fail',
    room_id,
    event_id,
    'to be in state group ' || state_group,
    coalesce(found, 'nothing')
from lost

union all

select 'state_group_without_event', 'warn', state_groups.room_id, uses.event_id, 'a row of events', 'none'
from {{ source('synapse', 'event_to_state_groups') }} as uses
left anti join {{ source('synapse', 'events') }} as events on uses.event_id = events.event_id
-- For a lost event, this finding is the evidence that it was no outlier.
left anti join {{ source('synapse', 'event_json') }} as fields on uses.event_id = fields.event_id
left join {{ source('synapse', 'state_groups') }} as state_groups on uses.state_group = state_groups.id

union all

select 'stray_state_rows', 'warn', room_id, string(state_group), 'a row of state_groups', number_of_rows || ' rows of it'
from stray_rows

union all

select
    'state_group_' || fault,
    case when fault in ('other_room', 'several_predecessors') then 'warn' else 'fail' end,
    room_id,
    string(state_group),
    'one older group of the room, or none, to rest on',
    fault
from {{ source('state', 'state_faults') }}

union all

-- 175: the sum of the usual compressor's levels, 100, 50 and 25.
select
    'state_chain_too_long',
    case when max(chain_length) > 175 then 'warn' else 'info' end,
    room_id,
    string(max_by(state_group, chain_length)),
    'a chain of at most 100 groups',
    string(max(chain_length))
from {{ ref('state_group_sizes') }}
where chain_length > 100
group by room_id

union all

select 'state_group_unreferenced', 'info', needs.room_id, string(needs.state_group), 'an event that needs it', 'none'
from needs
left anti join {{ source('synapse', 'state_groups_pending_deletion') }} as pending
    on needs.state_group = pending.state_group
where needs.next_used is null or needs.next_used > needs.last_position

union all

select 'room_statistics', 'warn', room_id, name, string(counted), string(stored)
from numbers
where stored < counted or stored > counted + slack

union all

-- The copy's replacement for a text that cannot be projected: synapse_lakehouse.postgres.rows.select_sql. Synapse fails
-- if it cannot parse such a text. Internal metadata is part of its event.
select
    'unreadable_value',
    case when value = '"unreadable"' then 'fail' else 'warn' end,
    room_id,
    subject,
    'a JSON object',
    replace(value, '"', '')
from (
    select
        room_id,
        'receipts_linearized.data ' || concat_ws(' ', receipt_type, user_id, thread_id) as subject,
        data as value
    from {{ source('synapse', 'receipts_linearized') }}
    union all
    select
        cast(null as string) as room_id,
        'account_data.content ' || account_data_type || ' ' || user_id as subject,
        content as value
    from {{ source('synapse', 'account_data') }}
) as texts
where value in ('"unreadable"', '"not an object"')

union all

-- Above 10, Synapse sends dummy events to join them; an event can refer to at most 20.
select
    'forward_extremities',
    case when count(*) > 20 then 'warn' else 'info' end,
    room_id,
    room_id,
    'at most 10',
    string(count(*))
from {{ source('synapse', 'event_forward_extremities') }}
group by room_id
having count(*) > 10

{%- if var('retention_enabled') %}

union all

select
    'retention_overdue',
    'warn',
    room_id,
    min_by(event_id, received_ts),
    'to be purged',
    count(*) || ' events'
from expired
where topological_ordering < purged_up_to
group by room_id
{%- endif %}
