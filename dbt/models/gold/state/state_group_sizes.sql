with deltas as (
    select state_group, count(*) as delta_rows
    from {{ source('synapse', 'state_groups_state') }}
    group by state_group
),

users as (
    select state_group, count(*) as events
    from {{ source('synapse', 'event_to_state_groups') }}
    group by state_group
),

-- Pieces of state at a position, and the length of its chain: the number of begun intervals minus the number of ended
-- ones. So a chain of 100,000 groups takes no longer than 100,000 groups without predecessors.
turns as (
    select room_id, first_position as position, 1 as pieces, 0 as nodes from {{ source('state', 'state_intervals') }}
    union all
    select room_id, last_position + 1, -1, 0 from {{ source('state', 'state_intervals') }}
    union all
    select room_id, position, 0, 1 from {{ source('state', 'state_positions') }}
    union all
    select room_id, last_position + 1, 0, -1 from {{ source('state', 'state_positions') }}
),

sizes as (
    select
        room_id,
        position,
        sum(sum(pieces)) over (partition by room_id order by position rows unbounded preceding) as state_rows,
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
    sizes.state_rows,
    sizes.chain_length,
    coalesce(users.events, 0) as events
from {{ source('state', 'state_positions') }} as positions
left join (
    select state_group, max(prev_state_group) as prev_state_group
    from {{ source('synapse', 'state_group_edges') }}
    group by state_group
) as edges on positions.state_group = edges.state_group
left join deltas on positions.state_group = deltas.state_group
inner join sizes on positions.room_id = sizes.room_id and positions.position = sizes.position
left join users on positions.state_group = users.state_group
