-- Synapse computes the state before an event from the states after the previous events, if it has all of these. A rejected
-- event has the state before it. Synapse updates the events of a fast join one after the other.
with known as (
    select
        events.event_id,
        events.room_id,
        events.type,
        events.state_key,
        events.is_state and not events.rejected as sets_state,
        events.stream_ordering,
        events.state_group,
        positions.position,
        positions.state_rows,
        positions.digest
    from {{ ref('events') }} as events
    inner join {{ source('state', 'state_positions') }} as positions
        on events.room_id = positions.room_id and events.state_group = positions.state_group
    left anti join {{ source('synapse', 'partial_state_events') }} as incomplete on events.event_id = incomplete.event_id
),

-- A former outlier had no state before. Backfill stores the later event first, with the state that another server sent. The
-- stream IDs of two events are in the order of their arrival if both are positive, or both negative.
stored_before as (
    select
        later.event_id,
        count_if(
            earlier.event_id is not null
            and former_outliers.event_id is null
            and signum(earlier.stream_ordering) = signum(later.stream_ordering)
            and abs(earlier.stream_ordering) < abs(later.stream_ordering)
        ) as stored,
        count(*) as previous,
        min(earlier.digest) as digest,
        max(earlier.digest) as other_digest,
        max(earlier.event_id) as previous_event_id,
        max(earlier.position) as position,
        max(earlier.state_rows) as state_rows
    from known as later
    inner join {{ source('synapse', 'event_edges') }} as edges on later.event_id = edges.event_id
    left join known as earlier on edges.prev_event_id = earlier.event_id and later.room_id = earlier.room_id
    left join (select distinct event_id from {{ source('synapse', 'ex_outlier_stream') }}) as former_outliers
        on edges.prev_event_id = former_outliers.event_id
    group by later.event_id
    having stored = previous and digest = other_digest
),

states as (
    select
        known.*,
        stored_before.previous_event_id,
        stored_before.digest
        ^ if(
            known.sets_state,
            xxhash64(known.type, known.state_key, known.event_id)
            ^ if(replaced.event_id is null, 0L, xxhash64(known.type, known.state_key, replaced.event_id)),
            0L
        ) as expected_digest,
        stored_before.state_rows + if(known.sets_state and replaced.event_id is null, 1, 0) as expected_rows
    from known
    inner join stored_before on known.event_id = stored_before.event_id
    left join {{ source('state', 'state_intervals') }} as replaced
        on
            known.sets_state
            and known.room_id = replaced.room_id
            and known.type = replaced.type
            and known.state_key = replaced.state_key
            and stored_before.position >= replaced.first_position
            and stored_before.position <= replaced.last_position
    union all
    -- Nothing precedes the creation of the room.
    select known.*, cast(null as string), xxhash64(type, state_key, event_id), 1
    from known
    where type = 'm.room.create' and state_key = '' and sets_state
)

select
    'state_not_of_previous_event' as check_name,
    'fail' as severity,
    room_id,
    event_id as subject,
    coalesce('the state after ' || previous_event_id, 'no state before it')
    || if(sets_state, ' with this event', '') || ', ' || expected_rows || ' pieces of state' as expected,
    'state group ' || state_group || ', ' || state_rows || ' pieces of state' as found
from states
where digest <> expected_digest
