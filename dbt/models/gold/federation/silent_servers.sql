{{ config(materialized='view') }}
with hours as (
    select
        server,
        hour,
        events,
        max(hour) over (partition by server) as last_hour,
        lag(hour) over (partition by server order by hour) as previous_hour
    from {{ ref('federation_delay') }}
    where hour < current_timestamp + interval '1' day
),

rhythms as (
    select
        server,
        last_hour,
        count(*) as active_hours,
        sum(events) as events,
        max(case when previous_hour >= last_hour - interval '28' day then
            cast((unix_millis(hour) - unix_millis(previous_hour)) / 3600000 as bigint)
        end) as longest_pause_hours
    from hours
    where hour >= last_hour - interval '28' day
    group by server, last_hour
    having count(*) >= 5
),

silences as (
    select
        rhythms.*,
        cast((unix_millis(newest.hour) - unix_millis(rhythms.last_hour)) / 3600000 as bigint) as silent_hours
    from rhythms
    -- A wrong clock of the homeserver may have stored a time in the future.
    cross join (
        select date_trunc('hour', max(received_at)) as hour from {{ ref('events') }}
        where received_at < current_timestamp + interval '1' day
    ) as newest
)

select
    server,
    last_hour,
    silent_hours,
    longest_pause_hours,
    cast(active_hours as bigint) as active_hours,
    cast(events as bigint) as events
from silences
where silent_hours > greatest(6, 2 * longest_pause_hours) and silent_hours <= 28 * 24
