-- Memberships of this server's users that differ from the current state of rooms in which the server takes part. During a
-- fast join of a room, the room's current state lacks members.
select
    'local_membership_differs' as check_name,
    'fail' as severity,
    coalesce(pieces.room_id, memberships.room_id) as room_id,
    coalesce(pieces.state_key, memberships.user_id) as subject,
    coalesce(pieces.event_id, 'no membership') as expected,
    coalesce(memberships.event_id, 'no membership') as found
from (
    select room_id, state_key, event_id, event_stream_ordering
    from {{ source('synapse', 'current_state_events') }}
    where type = 'm.room.member' and {{ server_name('state_key') }} = '{{ var('server_name') }}'
) as pieces
full outer join {{ source('synapse', 'local_current_membership') }} as memberships
    on pieces.room_id = memberships.room_id and pieces.state_key = memberships.user_id
-- An invite from another server, a knock, or the rejection of an invite is stored at once, although the room's events do not
-- contain it yet. They may never contain it, for example if the event is soft-failed later.
left anti join (
    select event_id from {{ source('synapse', 'events') }} where outlier and type = 'm.room.member'
    union all
    select event_id from {{ source('synapse', 'ex_outlier_stream') }}
) as out_of_band
    on
        memberships.event_id = out_of_band.event_id
        and memberships.membership in ('invite', 'knock', 'leave')
        and memberships.event_stream_ordering > coalesce(pieces.event_stream_ordering, 0)
left anti join {{ source('synapse', 'partial_state_rooms') }} as partial
    on coalesce(pieces.room_id, memberships.room_id) = partial.room_id
where
    -- Only local_current_membership has invites to rooms without this server, and users that left as the last users of this
    -- server.
    pieces.event_id is distinct from memberships.event_id and (pieces.event_id is not null or memberships.membership = 'join')
