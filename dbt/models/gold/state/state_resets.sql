{{ config(meta={'compared_by': 'rows'}) }}
-- Resets that this release has, and resets of earlier releases, as long as Synapse stores the room.
with found as (
    select
        room_id,
        replace(replace(split_part(subject, ' ', 1), '%20', ' '), '%25', '%') as type,
        substr(subject, locate(' ', subject) + 1) as state_key,
        check_name as reason,
        nullif(expected, 'nothing') as before_event_id,
        nullif(found, 'nothing') as after_event_id,
        cast(null as bigint) as stream_id
    from {{ ref('state_integrity') }}
    where check_name in ('state_reset', 'current_state_differs')
    union all
    -- Synapse records a reset like any other change: an older event replaces a newer one, or a piece of state is removed
    -- although the server stays in the room. The stream IDs of backfilled events and of the state at a join are negative and
    -- have no order. An earlier delta shows that such an event is older.
    select
        deltas.room_id,
        deltas.type,
        deltas.state_key,
        if(deltas.event_id is null, 'removed', 'older_event'),
        deltas.prev_event_id,
        deltas.event_id,
        deltas.stream_id
    from {{ source('synapse', 'current_state_delta_stream') }} as deltas
    left join {{ source('synapse', 'events') }} as earlier on deltas.prev_event_id = earlier.event_id
    left join {{ source('synapse', 'events') }} as later on deltas.event_id = later.event_id
    left join (
        select event_id, min(stream_id) as stream_id
        from {{ source('synapse', 'current_state_delta_stream') }}
        group by event_id
    ) as first_changes on deltas.event_id = first_changes.event_id
    left join (
        select room_id, stream_id
        from {{ source('synapse', 'current_state_delta_stream') }}
        where type = 'm.room.create' and event_id is null
    ) as departures on deltas.room_id = departures.room_id and deltas.stream_id = departures.stream_id
    where
        deltas.prev_event_id is not null
        and departures.room_id is null
        and (
            deltas.event_id is null
            or first_changes.stream_id < deltas.stream_id
            or (later.stream_ordering > 0 and later.stream_ordering < least(deltas.stream_id, earlier.stream_ordering))
        )
),

next_release as (
    select coalesce(max(release), 0) + 1 as release from {{ source('audit', 'releases') }}
)

select
    coalesce(found.room_id, previous.room_id) as room_id,
    coalesce(found.type, previous.type) as type,
    coalesce(found.state_key, previous.state_key) as state_key,
    coalesce(found.reason, previous.reason) as reason,
    if(found.room_id is null, previous.before_event_id, found.before_event_id) as before_event_id,
    if(found.room_id is null, previous.after_event_id, found.after_event_id) as after_event_id,
    if(found.room_id is null, previous.stream_id, found.stream_id) as stream_id,
    coalesce(previous.first_release, next_release.release) as first_release,
    if(found.room_id is null, coalesce(previous.gone_in_release, next_release.release), null) as gone_in_release
from found
full outer join {{ this }} as previous
    on
        found.room_id = previous.room_id
        and found.type = previous.type
        and found.state_key = previous.state_key
        and found.reason = previous.reason
        and found.before_event_id <=> previous.before_event_id
        and found.after_event_id <=> previous.after_event_id
        and found.stream_id <=> previous.stream_id
cross join next_release
left semi join {{ source('synapse', 'rooms') }} as rooms on coalesce(found.room_id, previous.room_id) = rooms.room_id
