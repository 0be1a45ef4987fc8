-- Synapse keeps every redaction it was sent and decides on reading which of them hold; so does this model.
with concerned as (
    select event_id from {{ source('synapse', 'redactions') }}
    union
    select redacts from {{ source('synapse', 'redactions') }}
),

-- Of all events these are few.
events as (
    select * from {{ source('synapse', 'events') }} where event_id in (select event_id from concerned)
),

redactions as (
    select
        redactions.event_id,
        redactions.redacts,
        redactions.recheck,
        redactions.have_censored,
        redacting.room_id,
        redacting.sender,
        redacting.stream_ordering,
        coalesce(rejections.reason, redacting.rejection_reason) is not null as rejected,
        fields.event_id is not null as known,
        fields.recheck_redaction,
        target.event_id is not null as target_known,
        target.type as target_type,
        target.room_id as target_room_id,
        target.sender as target_sender
    from {{ source('synapse', 'redactions') }} as redactions
    left join events as redacting on redactions.event_id = redacting.event_id
    left join (
        select * from {{ ref('event_fields') }} where event_id in (select event_id from concerned)
    ) as fields on redacting.event_id = fields.event_id
    left join {{ source('synapse', 'rejections') }} as rejections on redactions.event_id = rejections.event_id
    left join events as target on redactions.redacts = target.event_id
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
    -- Of several that hold, Synapse names one that needs no recheck first.
    case when verdict = 'applies' then row_number() over (
        partition by redacts, verdict order by recheck, stream_ordering nulls last, event_id
    ) = 1 else false end as is_first,
    have_censored
from judged
