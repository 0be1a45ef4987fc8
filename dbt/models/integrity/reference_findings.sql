-- Values without a target, for each reference that the catalogue declares: one row for each missing target. Legal cases that
-- depend on the row's own event are not reported.
{%- set references = declared_references() -%}
{%- set legal_events = [] -%}
{%- for reference in references -%}
    {%- for case in (reference.legal or []) | selectattr('event') -%}
        {%- do legal_events.append("faults.reference = " ~ reference.number ~ " and own." ~ case.event) -%}
    {%- endfor -%}
{%- endfor %}
with declared as (
    select * from values
    {%- for reference in references %}
    ({{ reference.number }}, '{{ reference.check }}', '{{ reference.severity }}', '{{ reference.table }}.{{ reference.column }}', '{{ reference.to.split('.')[0] }}'){{ "," if not loop.last }}
    {%- else %}
    (0, '', '', '', '')
    {%- endfor %} as declared(reference, check_name, severity, referrer, target)
),

own as (
    select
        events.event_id,
        events.room_id,
        events.outlier,
        coalesce(events.rejection_reason, rejections.reason) is not null as rejected,
        fields.redacts is null as redacts_nothing
    from {{ rows_with(source('synapse', 'events'), ref('reference_faults')) }} as events
    left join {{ rows_with(source('synapse', 'rejections'), ref('reference_faults')) }} as rejections
        on events.event_id = rejections.event_id
    left join {{ rows_with(ref('event_fields'), ref('reference_faults')) }} as fields on events.event_id = fields.event_id
),

faults as (
    select
        if(faults.is_missing, declared.check_name, 'copied_value_differs') as check_name,
        if(faults.is_missing, declared.severity, 'fail') as severity,
        coalesce(faults.room_id, own.room_id) as room_id,
        faults.id,
        faults.is_missing,
        declared.referrer,
        declared.target
    from {{ ref('reference_faults') }} as faults
    inner join declared on faults.reference = declared.reference
    left join own on faults.event_id = own.event_id
    where not (faults.is_missing and coalesce({{ legal_events | join(' or ') or 'false' }}, false))
)

select
    check_name,
    element_at(array('info', 'warn', 'fail'), int(max(array_position(array('info', 'warn', 'fail'), severity)))) as severity,
    max(room_id) as room_id,
    id as subject,
    if(max(is_missing), 'a row of ', 'the values of ') || array_join(array_sort(collect_set(target)), ', ') as expected,
    if(max(is_missing), 'none for ', 'other values in ') || array_join(array_sort(collect_set(referrer)), ', ') as found
from faults
group by check_name, id
