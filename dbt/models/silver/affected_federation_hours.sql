{{ config(materialized='affected_keys') }}
{%- set events, fields = source('changes', 'events_changes'), ref('affected_event_fields') -%}
{%- set rejections, former_outliers = source('changes', 'rejections_changes'), source('changes', 'ex_outlier_stream_changes') -%}
-- The clock skew of a day follows from the delays of the day and of the six days before it. So an event affects the hours of its
-- day and of the six days after it.
with changed_events as (
    select event_id from {{ events }}
    group by event_id, sender, origin_server_ts, received_ts, stream_ordering, outlier, rejection_reason
    having count(distinct _change_type) < 2
    union
    select event_id from {{ rejections }}
    union
    select event_id from {{ former_outliers }}
    union
    select event_id from {{ fields }}
),

times as (
    select received_ts from {{ source('synapse', 'events') }}
    where event_id in (
        select {{ broadcast_if_few('changed_events', [events, rejections, former_outliers, fields]) }} event_id from changed_events
    )
    union all
    -- The previous times, also of deleted events.
    select received_ts from {{ events }}
    where event_id in (select event_id from changed_events)
),

days as (
    select distinct date_trunc('day', {{ to_timestamp('received_ts') }}) as day from times
)

-- Readers cannot represent times after the year 9999.
select distinct explode(sequence(
    day, least(day + interval '6 23' day to hour, timestamp '9999-12-31 23:00:00'), interval '1' hour
)) as hour
from days
where day is not null
