with stray_rows as (
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
)

select
    'event_without_state_group' as check_name,
    'fail' as severity,
    room_id,
    event_id as subject,
    'a state group' as expected,
    'none' as found
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
