{{ config(materialized='view') }}
with widths as (
    select name, max_by(cast(bytes as double) / live_rows, measured_at) as bytes_per_row
    from {{ source('audit', 'relation_sizes') }}
    where kind = 'table' and live_rows > 0 and bytes is not null
    group by name
),

sizes as (
    select
        counts.room_id,
        sum(counts.stored_rows) as stored_rows,
        sum(counts.stored_rows * widths.bytes_per_row) as bytes
    from {{ ref('room_cleanup_rows') }} as counts
    left join widths on counts.table_name = widths.name
    group by counts.room_id
),

-- As in Synapse, a user forgot a room if none of the user's membership events there is unforgotten.
remembered as (
    select distinct room_id, user_id from {{ source('synapse', 'room_memberships') }}
    where forgotten = 0
),

local_users as (
    select
        members.room_id,
        count(case when members.membership in ('invite', 'knock') then 1 end) as pending_local_users,
        count(case when members.membership in ('leave', 'ban') and remembered.user_id is not null then 1 end)
            as unforgotten_local_users
    from {{ source('synapse', 'local_current_membership') }} as members
    left join remembered on members.room_id = remembered.room_id and members.user_id = remembered.user_id
    group by members.room_id
),

media as (
    select room_id, count(*) as media_events from {{ ref('events') }}
    where contains_url and not outlier
    group by room_id
)

select
    rooms.room_id,
    rooms.is_blocked,
    rooms.joined_members,
    coalesce(local_users.pending_local_users, 0) as pending_local_users,
    coalesce(local_users.unforgotten_local_users, 0) as unforgotten_local_users,
    last_change.received_at as last_event_at,
    cast(coalesce(sizes.stored_rows, 0) as bigint) as stored_rows,
    cast(round(sizes.bytes) as bigint) as estimated_bytes,
    coalesce(media.media_events, 0) as media_events
from {{ ref('rooms') }} as rooms
left join sizes on rooms.room_id = sizes.room_id
left join local_users on rooms.room_id = local_users.room_id
left join {{ ref('room_last_change') }} as last_change on rooms.room_id = last_change.room_id
left join media on rooms.room_id = media.room_id
where rooms.joined_local_members = 0
