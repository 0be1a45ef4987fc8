-- Values without a target, for each reference that the catalogue declares: one row for each missing target.
-- dbt needs the names of the tables when it parses the project. A test compares them with the catalogue.
{%- set tables = {} -%}
{%- for table in [
    'current_state_events', 'event_auth', 'event_backward_extremities', 'event_edges', 'event_forward_extremities',
    'event_json', 'event_relations', 'event_to_state_groups', 'events', 'local_current_membership',
    'partial_state_events', 'partial_state_rooms', 'receipts_linearized', 'redactions', 'rejections', 'room_aliases',
    'room_depth', 'room_memberships', 'rooms', 'state_events', 'state_group_edges', 'state_groups',
    'state_groups_state', 'un_partial_stated_event_stream',
] -%}
    {%- do tables.update({table: source('synapse', table)}) -%}
{%- endfor -%}
{%- set references = declared_references() -%}
{%- set legal_values = [] -%}
{%- set legal_events = [] -%}
{%- for reference in references -%}
    {%- for case in reference.legal or [] -%}
        {%- if case.found_in -%}
            {%- set table, column = case.found_in.split('.') -%}
            {%- do legal_values.append("select " ~ reference.number ~ " as reference, string(" ~ column ~ ") as id from " ~ tables[table]) -%}
        {%- else -%}
            {%- do legal_events.append("faults.reference = " ~ reference.number ~ " and own." ~ case.event) -%}
        {%- endif -%}
    {%- endfor -%}
{%- endfor %}
with values_with_fault as (
    {%- for to, referring in references | groupby('to') %}
    {%- set table, column = to.split('.') %}
    {%- set copying = referring | selectattr('equal') | list %}
    select referring.reference, referring.id, referring.room_id, referring.event_id, {{ 'target.' ~ column ~ ' is null' if copying else 'true' }} as is_missing
    from (
        {%- for reference in referring %}
        {{ referring_values(reference, tables[reference.table]) }}
        {{ "union all" if not loop.last }}
        {%- endfor %}
    ) as referring
    {%- if copying %}
    left join {{ tables[table] }} as target on referring.id = string(target.{{ column }})
    where
        target.{{ column }} is null
        or exists(
            zip_with(
                referring.copies,
                case referring.reference
                    {%- for reference in copying %}
                    when {{ reference.number }} then {{ string_array(reference.equal.values(), 'target') }}
                    {%- endfor %}
                end,
                (copy, original) -> copy <> original
            ),
            differs -> differs
        )
    {%- else %}
    left anti join {{ tables[table] }} as target on referring.id = string(target.{{ column }})
    {%- endif %}
    {{ "union all" if not loop.last }}
    {%- else %}
    select 0 as reference, '' as id, '' as room_id, '' as event_id, true as is_missing where false
    {%- endfor %}
),

declared as (
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
        coalesce(events.rejection_reason, rejections.reason) is not null as rejected
    from {{ tables['events'] }} as events
    left join {{ tables['rejections'] }} as rejections on events.event_id = rejections.event_id
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
    from values_with_fault as faults
    inner join declared on faults.reference = declared.reference
    left join own on faults.event_id = own.event_id
    left anti join (
        {{ legal_values | join(' union all ') or "select 0 as reference, '' as id where false" }}
    ) as legal on faults.is_missing and faults.reference = legal.reference and faults.id = legal.id
    where not (faults.is_missing and coalesce({{ legal_events | join(' or ') or 'false' }}, false))
)

select
    faults.check_name,
    element_at(array('info', 'warn', 'fail'), int(max(array_position(array('info', 'warn', 'fail'), faults.severity)))) as severity,
    max(faults.room_id) as room_id,
    faults.id as subject,
    if(max(faults.is_missing), 'a row of ', 'the values of ') || array_join(array_sort(collect_set(faults.target)), ', ') as expected,
    if(max(faults.is_missing), 'none for ', 'other values in ') || array_join(array_sort(collect_set(faults.referrer)), ', ') as found
from faults
-- An event of which the JSON is still stored is a finding of lost_event_findings.
left anti join {{ tables['event_json'] }} as fields on faults.is_missing and faults.target = 'events' and faults.id = fields.event_id
group by faults.check_name, faults.id
