-- Synapse stores every redaction and decides on reading whether it applies; so does this model.
with stored as (
    select event_id, redacts, recheck, have_censored, false as by_ban
    from {{ source('synapse', 'redactions') }}
    union all
    -- A ban may redact all events of the user in the room, until a later membership ends that (MSC4293). Synapse applies
    -- such redactions even if its experimental feature is disabled.
    select bans.redacting_event_id, events.event_id, true, false, true
    from {{ source('synapse', 'room_ban_redactions') }} as bans
    inner join {{ source('synapse', 'events') }} as events
        on bans.room_id = events.room_id and bans.user_id = events.sender
    where coalesce(bans.redact_end_ordering, 0) = 0 or events.stream_ordering < bans.redact_end_ordering
),

named as (
    select event_id as redaction, redacts, 'redacting' as place, event_id from stored
    union all
    select event_id, redacts, 'target', redacts from stored
),

-- These events are few and are searched once, with one row each.
events as (
    select
        named.redaction,
        named.redacts,
        max(events.event_id) filter (where named.place = 'redacting') as event_id,
        max(events.room_id) filter (where named.place = 'redacting') as room_id,
        max(events.sender) filter (where named.place = 'redacting') as sender,
        max(events.stream_ordering) filter (where named.place = 'redacting') as stream_ordering,
        max(events.event_id) filter (where named.place = 'target') as target,
        max(events.room_id) filter (where named.place = 'target') as target_room_id,
        max(events.sender) filter (where named.place = 'target') as target_sender,
        max(events.type) filter (where named.place = 'target') as target_type
    from {{ source('synapse', 'events') }} as events
    inner join named on events.event_id = named.event_id
    group by named.redaction, named.redacts
),

redactions as (
    select
        stored.event_id,
        stored.redacts,
        stored.recheck,
        stored.have_censored,
        stored.by_ban,
        events.room_id,
        events.sender,
        events.stream_ordering,
        coalesce(rejections.reason, '') <> '' as rejected,
        events.event_id is not null and fields.event_id is not null and fields.unloadable is null as known,
        fields.recheck_redaction,
        events.target is not null as target_known,
        events.target_type,
        events.target_room_id,
        events.target_sender
    from stored
    left join events on stored.event_id = events.redaction and stored.redacts = events.redacts
    left join (
        select event_id, unloadable, recheck_redaction from {{ ref('event_fields') }}
        where event_id in (select event_id from stored)
    ) as fields on stored.event_id = fields.event_id
    left join {{ source('synapse', 'rejections') }} as rejections on stored.event_id = rejections.event_id
),

judged as (
    select
        *,
        case
            when not target_known then 'target_unknown'
            when target_type = 'm.room.create' then 'target_is_create'
            when not recheck then 'applies'
            when not known then 'redaction_unknown'
            when rejected then 'rejected'
            when room_id <> target_room_id then 'other_room'
            when recheck_redaction and {{ server_name('sender') }} <> {{ server_name('target_sender') }}
                then 'other_server'
            else 'applies'
        end as verdict
    from redactions
)

select
    event_id,
    redacts,
    room_id,
    sender,
    stream_ordering,
    verdict,
    verdict = 'applies' as applies,
    -- Of several redactions that apply, Synapse prefers one without recheck, and takes a ban last.
    case when verdict = 'applies' then row_number() over (
        partition by redacts, verdict order by recheck nulls first, by_ban, stream_ordering nulls last, event_id
    ) = 1 else false end as is_first,
    have_censored,
    by_ban
from judged
