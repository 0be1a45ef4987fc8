with users as (
    select state_group, count(*) as events
    from {{ source('synapse', 'event_to_state_groups') }}
    group by state_group
),

-- The length of the chain at a position: the number of ranges that began at or before it, minus the number of ranges that ended
-- before it. So a chain of 100,000 groups takes no longer to compute than 100,000 groups without predecessors.
turns as (
    select room_id, position, 1 as nodes from {{ source('state', 'state_positions') }}
    union all
    select room_id, last_position + 1, -1 from {{ source('state', 'state_positions') }}
),

chains as (
    select
        room_id,
        position,
        sum(sum(nodes)) over (partition by room_id order by position rows unbounded preceding) as chain_length
    from turns
    group by room_id, position
)

select
    positions.room_id,
    positions.state_group,
    edges.prev_state_group,
    positions.position,
    coalesce(deltas.delta_rows, 0) as delta_rows,
    positions.state_rows,
    chains.chain_length,
    coalesce(users.events, 0) as events
from {{ source('state', 'state_positions') }} as positions
left join (
    select state_group, max(prev_state_group) as prev_state_group
    from {{ source('synapse', 'state_group_edges') }}
    group by state_group
) as edges on positions.state_group = edges.state_group
left join {{ ref('state_group_delta_rows') }} as deltas on positions.state_group = deltas.state_group
inner join chains on positions.room_id = chains.room_id and positions.position = chains.position
left join users on positions.state_group = users.state_group
