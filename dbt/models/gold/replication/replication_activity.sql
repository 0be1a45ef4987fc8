{{ config(materialized='view') }}
select
    dialect,
    source,
    command,
    stream,
    instance,
    date_trunc('hour', received_at) as hour,
    count(*) as commands,
    max(received_at) as last_received_at
from {{ source('replication', 'replication_commands') }}
group by dialect, source, command, stream, instance, date_trunc('hour', received_at)
