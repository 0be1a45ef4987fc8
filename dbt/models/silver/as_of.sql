{{ config(compared_by='rows') }}
{%- if var('retention_enabled') %}
with moments as (
    select circumstances.expires_at as at
    from {{ ref('event_circumstances') }} as circumstances
    where circumstances.expires_at is not null
    union all
    select {{ overdue_at('circumstances', 'events') }}
    from {{ ref('event_circumstances') }} as circumstances
    inner join {{ ref('events') }} as events on circumstances.event_id = events.event_id
    where circumstances.expires_at is not null
)

select
    'retention' as judged,
    cast(max(at) + 1 as bigint) as as_of
from moments
where at < {{ var('as_of') | int }}
{%- else %}
select
    'retention' as judged,
    cast(null as bigint) as as_of
{%- endif %}
