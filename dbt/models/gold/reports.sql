{{ config(materialized='view') }}
with all_reports as (
    select
        'event' as kind,
        reports.id,
        reports.received_ts,
        reports.room_id,
        reports.event_id,
        events.sender as reported_user_id,
        reports.user_id
    from {{ source('synapse', 'event_reports') }} as reports
    left join {{ ref('events') }} as events on reports.event_id = events.event_id
    union all
    select 'room', id, received_ts, room_id, cast(null as string), cast(null as string), user_id
    from {{ source('synapse', 'room_reports') }}
    union all
    select 'user', id, received_ts, cast(null as string), cast(null as string), target_user_id, user_id
    from {{ source('synapse', 'user_reports') }}
)

select
    kind,
    id as report_id,
    {{ to_timestamp('received_ts') }} as received_at,
    room_id,
    event_id,
    reported_user_id,
    {{ server_name('reported_user_id') }} as reported_server,
    user_id as reporter_id
from all_reports
