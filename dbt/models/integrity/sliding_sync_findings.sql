-- Rows of the tables for sliding sync that differ from the tables that Synapse derives them from. While a background update
-- fills these tables, nothing is compared.
with is_complete as (
    select count(*) = 0 as is_complete
    from {{ source('synapse', 'background_updates') }}
    where update_name like 'sliding_sync%'
),

-- Synapse counts rejected events only when it creates the room's row, and not events that it accepts later. An event that was
-- stored as an outlier never changes `bump_stamp` afterwards (_update_outliers_txn).
latest_events as (
    select
        events.room_id,
        max(events.stream_ordering) as stream_ordering,
        max(events.stream_ordering) filter (
            where
            not events.outlier
            and former_outliers.event_id is null
            and events.type in (
                'm.room.create', 'm.room.message', 'm.room.encrypted', 'm.sticker', 'm.call.invite', 'm.poll.start',
                'm.beacon_info'
            )
        ) as bump_stamp
    from {{ source('synapse', 'events') }} as events
    left anti join {{ source('synapse', 'un_partial_stated_event_stream') }} as accepted on events.event_id = accepted.event_id
    left join (select distinct event_id from {{ source('synapse', 'ex_outlier_stream') }}) as former_outliers
        on events.event_id = former_outliers.event_id
    where events.stream_ordering > 0 and events.rejection_reason is null
    group by events.room_id
),

-- The stored ID may be the ID of a rejected event that existed when the row was created, or the ID of an event that was accepted
-- later. It is never the ID of another room's event.
foreign_orderings as (
    select joined_rooms.room_id
    from {{ source('synapse', 'sliding_sync_joined_rooms') }} as joined_rooms
    inner join {{ source('synapse', 'events') }} as events
        on joined_rooms.event_stream_ordering = events.stream_ordering and joined_rooms.room_id <> events.room_id
    union
    select joined_rooms.room_id
    from {{ source('synapse', 'sliding_sync_joined_rooms') }} as joined_rooms
    cross join (select max(stream_ordering) as stream_ordering from {{ source('synapse', 'events') }}) as latest
    where joined_rooms.event_stream_ordering > latest.stream_ordering
),

room_states as (
    select
        room_id,
        count_if(type = 'm.room.encryption' and state_key = '') > 0 as has_encryption,
        count_if(type = 'm.room.tombstone' and state_key = '') > 0 as has_tombstone
    from {{ source('synapse', 'current_state_events') }}
    group by room_id
),

rooms as (
    select
        coalesce(joined_rooms.room_id, room_states.room_id) as room_id,
        joined_rooms.room_id is not null as is_stored,
        room_states.room_id is not null as has_state,
        joined_rooms.event_stream_ordering as stored_ordering,
        latest_events.stream_ordering,
        foreign_orderings.room_id is not null as is_ordering_foreign,
        joined_rooms.bump_stamp as stored_bump_stamp,
        latest_events.bump_stamp,
        joined_rooms.is_encrypted,
        room_states.has_encryption,
        statistics.encryption,
        joined_rooms.tombstone_successor_room_id is not null and not room_states.has_tombstone as is_tombstone_outdated,
        joined_rooms.tombstone_successor_room_id as stored_successor,
        properties.replacement_room
    from {{ source('synapse', 'sliding_sync_joined_rooms') }} as joined_rooms
    full outer join room_states on joined_rooms.room_id = room_states.room_id
    left join latest_events on joined_rooms.room_id = latest_events.room_id
    left join foreign_orderings on joined_rooms.room_id = foreign_orderings.room_id
    left join {{ ref('rooms') }} as properties on joined_rooms.room_id = properties.room_id
    left join {{ source('synapse', 'room_stats_state') }} as statistics on joined_rooms.room_id = statistics.room_id
),

-- The background updates create no rows for rooms of unknown versions.
unsupported_rooms as (
    select distinct room_id from {{ ref('events') }} where unloadable = 'room_version_unknown'
),

-- `fault`: severity, expected, found.
room_faults as (
    select
        rooms.room_id,
        'sliding_sync_joined_rooms' as subject,
        case
            when not is_stored then array('fail', 'a row, because the room has state', 'no row')
            when not has_state then array('fail', 'no row, because the room has no state', 'a row')
            when stored_ordering < stream_ordering or is_ordering_foreign then array(
                'fail', 'event_stream_ordering ' || coalesce(string(stream_ordering), 'of an event of the room'), string(stored_ordering)
            )
            when is_encrypted and not has_encryption then array('fail', 'is_encrypted false', 'true')
            when not is_encrypted and has_encryption and encryption is not null then array('fail', 'is_encrypted true', 'false')
            when is_tombstone_outdated then array('fail', 'tombstone_successor_room_id NULL', 'a room')
            -- The current state has no value if the event was redacted, or if its content is invalid.
            when stored_successor is distinct from coalesce(replacement_room, stored_successor) then array(
                'fail', 'tombstone_successor_room_id of the tombstone', if(stored_successor is null, 'NULL', 'another room')
            )
            -- Synapse's background update may store a value that is too low for a message that is sent meanwhile.
            when coalesce(stored_bump_stamp, 0) < bump_stamp
                then array('warn', 'bump_stamp ' || bump_stamp, coalesce(string(stored_bump_stamp), 'NULL'))
            when stored_bump_stamp > stored_ordering
                then array('warn', 'bump_stamp at most ' || stored_ordering, string(stored_bump_stamp))
        end as fault
    from rooms
    left anti join {{ source('synapse', 'sliding_sync_joined_rooms_to_recalculate') }} as outdated
        on rooms.room_id = outdated.room_id
),

membership_faults as (
    select
        coalesce(snapshots.room_id, memberships.room_id) as room_id,
        'sliding_sync_membership_snapshots ' || coalesce(snapshots.user_id, memberships.user_id) as subject,
        case
            when snapshots.room_id is null
                then array('fail', 'a row, because the user has a membership', 'no row')
            when memberships.room_id is null then array('fail', 'no row, because the user has no membership', 'a row')
            when snapshots.membership_event_id <> memberships.event_id
                then array('fail', memberships.event_id, snapshots.membership_event_id)
            when snapshots.membership <> memberships.membership then array('fail', memberships.membership, snapshots.membership)
            when snapshots.sender <> events.sender then array('fail', events.sender, snapshots.sender)
            when snapshots.event_stream_ordering <> memberships.event_stream_ordering then array(
                'fail', 'event_stream_ordering ' || memberships.event_stream_ordering, string(snapshots.event_stream_ordering)
            )
            -- After a downgrade, an older Synapse version does not copy this flag. The flag is computed only once.
            when snapshots.forgotten <> events.forgotten
                then array('warn', 'forgotten ' || events.forgotten, string(snapshots.forgotten))
        end as fault
    from {{ source('synapse', 'sliding_sync_membership_snapshots') }} as snapshots
    full outer join {{ source('synapse', 'local_current_membership') }} as memberships
        on snapshots.room_id = memberships.room_id and snapshots.user_id = memberships.user_id
    left join {{ source('synapse', 'room_memberships') }} as events on memberships.event_id = events.event_id
)

select
    'sliding_sync_outdated' as check_name,
    faults.fault[0] as severity,
    faults.room_id,
    faults.subject,
    faults.fault[1] as expected,
    faults.fault[2] as found
from (select * from room_faults union all select * from membership_faults) as faults
left anti join unsupported_rooms on faults.room_id = unsupported_rooms.room_id and faults.fault[2] = 'no row'
cross join is_complete
where is_complete.is_complete and faults.fault is not null
