{{ config(meta={'affected_by': 'changed_references'}) }}
{%- set tables = referenced_tables() -%}
{%- set references = declared_references() -%}
{%- set compared = reference_places(references) -%}
{%- set events = source('synapse', 'events') -%}
{%- set changed = ref('changed_references') if is_partial_build(ref('changed_references'), events) else none -%}
-- Each table is read once. A value's mask of places shows the references that it violates, so one aggregation compares all
-- columns. Hashes of 64 bits suffice to find accidents.
with occurrences as (
    {%- for table, places in compared.places | groupby('table') %}
    {%- set columns = places | groupby('column') %}
    select stack(
        {{ columns | length }}
        {%- for column, conditions in columns %},
        {{ value_hash(column) }},
        {% for place in conditions %}if({{ place.rows }}, {{ place.mask }}L, 0L){{ " | " if not loop.last }}{% endfor %}
        {%- endfor %}
    ) as (value_hash, places)
    from {{ tables[table] }}
    {{ "union all" if not loop.last }}
    {%- else %}
    select cast(null as bigint) as value_hash, 0L as places where false
    {%- endfor %}
),

masks as (
    select value_hash, bit_or(places) as places
    from occurrences
    where value_hash is not null{% if changed is not none %} and value_hash in (select value_hash from {{ changed }}){% endif %}
    group by value_hash
)

select masks.value_hash, violated.reference, true as is_missing
from masks
inner join (
    values
    {%- for mask in compared.masks %}
    ({{ mask.number }}, {{ mask.referring }}L, {{ mask.present }}L){{ "," if not loop.last }}
    {%- else %}
    (0, 0L, 0L)
    {%- endfor %}
) as violated (reference, referring, present)
    on masks.places & violated.referring <> 0 and masks.places & violated.present = 0

{%- for to, copying in references | selectattr('equal') | groupby('to') %}
{%- set table, column = to.split('.') %}
{%- set originals = copying | map(attribute='equal') | map('dictsort') | sum(start=[]) | map('last') | unique | list %}

union all

select distinct {{ value_hash('copies.id') }} as value_hash, copies.reference, false as is_missing
from (
    {%- for reference in copying %}
    select
        {{ reference.number }} as reference,
        {%- for original in originals %}
        {{ reference.equal | dictsort | selectattr(1, 'equalto', original) | map('first') | first | default('null', true) }} as {{ original }},
        {%- endfor %}
        {{ reference.column }} as id
    from {{ rows_with_value(tables[reference.table], reference.column, changed) }}
    where {{ reference.rows or 'true' }}
    {{ "union all" if not loop.last }}
    {%- endfor %}
) as copies
inner join {{ rows_with_value(tables[table], column, changed) }} as target on copies.id = target.{{ column }}
where
    {%- for original in originals %}
    copies.{{ original }} <> target.{{ original }}{{ " or" if not loop.last }}
    {%- endfor %}
{%- endfor %}
