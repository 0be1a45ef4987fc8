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

-- How many pieces of state are set at a position: all that began, less all that ended before it.
turns as (
    select room_id, first_position as position, 1 as change from {{ source('state', 'state_intervals') }}
    union all
    select room_id, last_position + 1, -1 from {{ source('state', 'state_intervals') }}
    union all
    select room_id, position, 0 from {{ source('state', 'state_positions') }}
),

sizes as (
    select
        room_id,
        position,
        sum(sum(change)) over (partition by room_id order by position rows unbounded preceding) as state_rows
    from turns
    group by room_id, position
),

depths as (
    select
        below.room_id,
        below.state_group,
        count(*) as chain_length
    from {{ source('state', 'state_positions') }} as below
    inner join {{ source('state', 'state_positions') }} as above
        on
            below.room_id = above.room_id
            and below.root = above.root
            and below.position between above.position and above.last_position
    group by below.room_id, below.state_group
)

select
    positions.room_id,
    positions.state_group,
    edges.prev_state_group,
    positions.position,
    coalesce(deltas.delta_rows, 0) as delta_rows,
    coalesce(sizes.state_rows, 0) as state_rows,
    depths.chain_length,
    coalesce(users.events, 0) as events
from {{ source('state', 'state_positions') }} as positions
left join (
    select state_group, max(prev_state_group) as prev_state_group
    from {{ source('synapse', 'state_group_edges') }}
    group by state_group
) as edges on positions.state_group = edges.state_group
left join deltas on positions.state_group = deltas.state_group
left join sizes on positions.room_id = sizes.room_id and positions.position = sizes.position
left join depths on positions.room_id = depths.room_id and positions.state_group = depths.state_group
left join users on positions.state_group = users.state_group
