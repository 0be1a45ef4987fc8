{{ config(meta={'affected_by': 'affected_federation_hours'}) }}
{%- set affected = ref('affected_federation_hours') -%}
{#- Most affected hours have no rows: they are in the future. -#}
{%- set stored = "(select distinct hour from " ~ this ~ ")" -%}
{%- set is_partial = is_partial_build("(select * from " ~ stored ~ " where hour in (select hour from " ~ affected ~ "))", stored) -%}
{%- set plausible_ms = 30 * 24 * 3600 * 1000 -%}
-- A former outlier keeps the time at which it arrived with a join, so this time shows no delay.
with
{%- if is_partial %}
needed_days as (
    select distinct explode(
        sequence(date_trunc('day', hour) - interval '6' day, date_trunc('day', hour), interval '1' day)
    ) as day
    from {{ affected }}
),
{% endif %}
live_events as (
    select
        {{ server_name('events.sender') }} as server,
        date_trunc('hour', events.received_at) as hour,
        case
            when
                events.origin_server_ts between unix_millis(events.received_at) - {{ plausible_ms }}
                and unix_millis(events.received_at) + {{ plausible_ms }}
                then unix_millis(events.received_at) - events.origin_server_ts
        end as delay_ms
    from {{ ref('events') }} as events
    where
        events.stream_ordering > 0
        and events.received_at is not null
        and not events.outlier
        and not events.rejected
        and not coalesce(events.soft_failed, false)
        and {{ server_name('events.sender') }} <> '{{ var("server_name") }}'
        and not exists (
            select 1 from {{ source('synapse', 'ex_outlier_stream') }} as former where former.event_id = events.event_id
        )
        {%- if is_partial %}
        and date_trunc('day', events.received_at) in (select day from needed_days)
        {#- Iceberg skips the data files of earlier events. #}
        and events.received_at >= timestamp '{{ run_query(
            "select string(coalesce(min(hour), timestamp '9999-01-01') - interval '6' day) from " ~ affected
        ).columns[0].values()[0] }}'
        {%- endif %}
),

sorted_delays as (
    select
        server,
        hour,
        count(*) as events,
        array_sort(collect_list(delay_ms)) as delays_ms
    from live_events
    group by server, hour
),

hours as (
    select
        server,
        hour,
        events,
        cast(size(delays_ms) as bigint) as measured_events,
        -- The smallest delay that this share of the events did not exceed. percentile_disc takes twice the time.
        {%- for share, name in [(0.05, 'fastest_ms'), (0.5, 'median_ms'), (0.95, 'p95_ms'), (1, 'max_ms')] %}
        get(delays_ms, cast(ceil({{ share }} * size(delays_ms)) as int) - 1) as {{ name }}{{ "," if not loop.last }}
        {%- endfor %}
    from sorted_delays
),

days as (
    select
        server,
        date_trunc('day', hour) as day,
        sum(measured_events) as measured_events,
        percentile_disc(0.25) within group (order by fastest_ms) as fastest_ms
    from hours
    group by server, date_trunc('day', hour)
),

-- Each measured delay is the difference of the clocks plus the time of delivery. So the fastest events show the difference best
-- (the minimum filter of RFC 5905, section 10). Quantiles replace the minimum, because times may be forged.
clocks as (
    select
        days.server,
        days.day,
        percentile_disc(0.5) within group (order by earlier.fastest_ms) as fastest_ms
    from days
    inner join days as earlier
        on
            days.server = earlier.server
            and earlier.day between days.day - interval '6' day and days.day
    group by days.server, days.day
    having sum(earlier.measured_events) >= 20
)

select
    hours.server,
    hours.hour,
    hours.events,
    hours.events - hours.measured_events as unmeasured_events,
    cast(-clocks.fastest_ms as bigint) as clock_skew_ms,
    cast(hours.median_ms - coalesce(clocks.fastest_ms, 0) as bigint) as median_ms,
    cast(hours.p95_ms - coalesce(clocks.fastest_ms, 0) as bigint) as p95_ms,
    cast(hours.max_ms - coalesce(clocks.fastest_ms, 0) as bigint) as max_ms
from hours
left join clocks on hours.server = clocks.server and date_trunc('day', hours.hour) = clocks.day
{%- if is_partial %}
where hours.hour in (select hour from {{ affected }})
{%- endif %}
