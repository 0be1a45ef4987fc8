{{ config(materialized='view') }}
select
    dialect,
    instance,
    date_trunc('hour', received_at) as hour,
    regexp_extract(row, '^."([^"]+)"', 1) as cache,
    count(*) as invalidations,
    count(distinct case when row not like '["%",null,%' then row_key end) as entries,
    count(case when row like '["%",null,%' then 1 end) as whole
from (
    select *, regexp_extract(row, '^."[^"]+","([0-9a-f]+)",', 1) as row_key
    from {{ source('replication', 'replication_commands') }}
    where command = 'RDATA' and stream = 'caches' and row <> 'null'
)
group by dialect, instance, date_trunc('hour', received_at), regexp_extract(row, '^."([^"]+)"', 1)
