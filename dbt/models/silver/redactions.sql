{{ config(meta={'affected_by': 'affected_redactions'}) }}
{%- set affected = ref('affected_redactions') -%}
{%- set is_partial = is_partial_build(affected) %}
-- Synapse stores every redaction, and decides whether it applies when it reads the target. This model makes the same decision.
with stored_redactions as (
    select event_id, redacts, recheck, have_censored, false as by_ban
    from {{ rows_with(source('synapse', 'redactions'), affected if is_partial else none, 'redacts') }}
    union all
    -- A ban may redact all events of the user in the room, until a later membership ends this (MSC4293). Synapse applies
    -- such redactions even if its experimental feature is disabled.
    select bans.redacting_event_id, events.event_id, true, false, true
    from {{ source('synapse', 'room_ban_redactions') }} as bans
    inner join {{ source('synapse', 'events') }} as events
        on bans.room_id = events.room_id and bans.user_id = events.sender
    where
        (coalesce(bans.redact_end_ordering, 0) = 0 or events.stream_ordering < bans.redact_end_ordering)
        {%- if is_partial %}
        and events.event_id in (select redacts from {{ affected }})
        {%- endif %}
),

event_roles as (
    select event_id as redaction, redacts, 'redacting' as role, event_id from stored_redactions
    union all
    select event_id, redacts, 'target', redacts from stored_redactions
),

-- These events are few and are searched once, with one row each.
events as (
    select {{ broadcast_if_few('event_roles', [affected]) if is_partial }}
        event_roles.redaction,
        event_roles.redacts,
        max(events.event_id) filter (where event_roles.role = 'redacting') as event_id,
        max(events.room_id) filter (where event_roles.role = 'redacting') as room_id,
        max(events.sender) filter (where event_roles.role = 'redacting') as sender,
        max(events.stream_ordering) filter (where event_roles.role = 'redacting') as stream_ordering,
        max(events.event_id) filter (where event_roles.role = 'target') as target,
        max(events.room_id) filter (where event_roles.role = 'target') as target_room_id,
        max(events.sender) filter (where event_roles.role = 'target') as target_sender,
        max(events.type) filter (where event_roles.role = 'target') as target_type
    from {{ source('synapse', 'events') }} as events
    inner join event_roles on events.event_id = event_roles.event_id
    group by event_roles.redaction, event_roles.redacts
),

redactions as (
    select
        stored_redactions.event_id,
        stored_redactions.redacts,
        stored_redactions.recheck,
        stored_redactions.have_censored,
        stored_redactions.by_ban,
        events.room_id,
        events.sender,
        events.stream_ordering,
        coalesce(rejections.reason, '') <> '' as rejected,
        events.event_id is not null and fields.event_id is not null and fields.unloadable is null as redaction_is_known,
        fields.recheck_redaction,
        events.target is not null as target_is_known,
        events.target_type,
        events.target_room_id,
        events.target_sender
    from stored_redactions
    left join events on stored_redactions.event_id = events.redaction and stored_redactions.redacts = events.redacts
    left join (
        select event_id, unloadable, recheck_redaction from {{ ref('event_fields') }}
        where event_id in (select {{ broadcast_if_few('stored_redactions', [affected]) if is_partial }} event_id from stored_redactions)
    ) as fields on stored_redactions.event_id = fields.event_id
    left join {{ source('synapse', 'rejections') }} as rejections on stored_redactions.event_id = rejections.event_id
),

verdicts as (
    select
        *,
        case
            when not target_is_known then 'target_unknown'
            when target_type = 'm.room.create' then 'target_is_create'
            when not recheck then 'applies'
            when not redaction_is_known then 'redaction_unknown'
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
from verdicts
