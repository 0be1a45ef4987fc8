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
)

select
    check_name,
    'fail' as severity,
    room_id,
    case check_name when 'state_reset' then subject else current_event_id end as subject,
    case check_name when 'state_reset' then coalesce(delta_event_id, 'nothing') else 'an event that is stored' end as expected,
    case check_name when 'state_reset' then coalesce(current_event_id, 'nothing') else 'no event' end as found
from current_state
where check_name is not null
