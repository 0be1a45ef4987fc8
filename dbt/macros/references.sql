{# The references that the catalogue declares: mappings with the keys of synapse_lakehouse.catalogue.Reference, and
   `number`, `table` and `columns` (names of the table's columns). While dbt parses the project, and in unit tests, dbt does
   not know the sources: unit tests declare references in the variable `references`. #}
{% macro declared_references() -%}
    {%- set references = [] -%}
    {%- for reference in var('references') -%}
        {%- do references.append(dict(reference, number=references | length)) -%}
    {%- endfor -%}
    {%- for table in (graph.get('sources') or {}).values() | sort(attribute='name') if table.source_name == 'synapse' -%}
        {%- for reference in table.config.meta.references or [] -%}
            {%- do references.append(
                dict(reference, number=references | length, table=table.name, columns=table.columns.keys() | list)
            ) -%}
        {%- endfor -%}
    {%- endfor -%}
    {{- return(references) -}}
{%- endmacro %}


{# SQL: the values of a reference. Columns: reference (its number), id, room_id and event_id (of the referring row; NULL
   if its table has no such column), copies (the values that must equal those of the target). #}
{% macro referring_values(reference, relation) -%}
    {%- set has_event = 'event_id' in reference.columns and reference.column != 'room_id' -%}
    select {{ 'distinct' if not has_event }}
        {{ reference.number }} as reference,
        string({{ reference.column }}) as id,
        {{ 'room_id' if 'room_id' in reference.columns else 'cast(null as string)' }} as room_id,
        {{ 'event_id' if has_event else 'cast(null as string)' }} as event_id,
        {{ string_array((reference.equal or {}).keys()) }} as copies
    from {{ relation }}
    where {{ reference.column }} is not null and {{ reference.rows or 'true' }}
{%- endmacro %}


{# SQL: an array of the columns' values as text. #}
{% macro string_array(columns, relation=none) -%}
    array(
        {%- for column in columns -%}
        string({{ relation ~ '.' if relation }}{{ column }}){{ ", " if not loop.last }}
        {%- else -%}
        cast(null as string)
        {%- endfor -%}
    )
{%- endmacro %}
