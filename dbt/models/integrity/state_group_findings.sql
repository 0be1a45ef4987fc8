-- `next_used`: position of the first group, from the group itself on, that is the state of an event. If this position is after
-- the group's last descendant, the group is unused.
with needs as (
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
    'state_group_' || fault as check_name,
    if(fault = 'other_room', 'warn', 'fail') as severity,
    room_id,
    string(state_group) as subject,
    'no predecessor, or one older predecessor in the same room' as expected,
    fault as found
from {{ source('state', 'state_faults') }}

union all

select
    'state_row_repeated',
    'fail',
    room_id,
    state_group || ' ' || {{ piece_of_state('type', 'state_key') }},
    'one row',
    number_of_rows || ' rows: ' || first_event_id || if(number_of_rows > 2, ' to ', ' and ') || last_event_id
from {{ ref('repeated_state_rows') }}

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
