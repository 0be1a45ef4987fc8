{{ config(meta={'compared_by': 'rows'}) }}
{%- if var('retention_enabled') %}
with moments as (
    select visibility_inputs.expires_at as at
    from {{ ref('event_visibility_inputs') }} as visibility_inputs
    where visibility_inputs.expires_at is not null
    union all
    select {{ overdue_at('visibility_inputs', 'events') }}
    from {{ ref('event_visibility_inputs') }} as visibility_inputs
    inner join {{ ref('events') }} as events on visibility_inputs.event_id = events.event_id
    where visibility_inputs.expires_at is not null
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
