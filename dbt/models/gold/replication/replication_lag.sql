{{ config(materialized='view') }}
-- Rows that the tap read from the database are late because of the tap, and do not count.
with delays as (
    select
        commands.dialect,
        commands.stream,
        commands.instance,
        commands.received_at,
        unix_millis(commands.received_at) - events.received_ts as lag_ms
    from {{ source('replication', 'replication_commands') }} as commands
    inner join {{ ref('events') }} as events
        on case when commands.stream = 'backfill' then -commands.token else commands.token end = events.stream_ordering
    where
        commands.command = 'RDATA'
        and commands.source <> 'database'
        and commands.stream in ('events', 'backfill')
        and commands.ordinal = 0

    union all

    select
        dialect,
        stream,
        instance,
        received_at,
        unix_millis(received_at) - try_cast(regexp_extract(row, ',([0-9]+).$', 1) as bigint) as lag_ms
    from {{ source('replication', 'replication_commands') }}
    where command = 'RDATA' and source <> 'database' and stream = 'caches'
)

select
    dialect,
    stream,
    instance,
    date_trunc('hour', received_at) as hour,
    count(*) as announced,
    cast(percentile_cont(0.5) within group (order by lag_ms) as bigint) as median_ms,
    cast(percentile_cont(0.95) within group (order by lag_ms) as bigint) as p95_ms,
    max(lag_ms) as max_ms
from delays
where lag_ms is not null
group by dialect, stream, instance, date_trunc('hour', received_at)
