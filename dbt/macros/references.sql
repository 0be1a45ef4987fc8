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


{# The tables that references name, as relations by name. dbt needs the names when it parses the project. A test compares
   them with the catalogue. `changes`: the views of their changed rows. #}
{% macro referenced_tables(changes=false) -%}
    {%- set tables = {} -%}
    {%- for table in [
        'current_state_events', 'event_auth', 'event_backward_extremities', 'event_edges', 'event_forward_extremities',
        'event_json', 'event_relations', 'event_to_state_groups', 'events', 'local_current_membership',
        'partial_state_events', 'partial_state_rooms', 'receipts_linearized', 'redactions', 'rejections', 'room_aliases',
        'room_depth', 'room_memberships', 'rooms', 'state_events', 'state_group_edges', 'state_groups',
        'state_groups_state', 'un_partial_stated_event_stream',
    ] -%}
        {%- do tables.update({table: source('changes', table ~ '_changes') if changes else source('synapse', table)}) -%}
    {%- endfor -%}
    {{- return(tables) -}}
{%- endmacro %}


{# The places where values occur: a column, and a condition on its rows. Each place is a bit of a mask. For each reference,
   `masks` has two masks: the referring place, and the places of which at least one must have the value. #}
{% macro reference_places(references) -%}
    {%- set keys = [] -%}
    {%- set places = [] -%}
    {%- set masks = [] -%}
    {%- for reference in references -%}
        {%- set names = [(reference.table ~ '.' ~ reference.column, reference.rows or 'true')] -%}
        {%- do names.append((reference.to, 'true')) -%}
        {%- for case in (reference.legal or []) | selectattr('found_in') -%}{%- do names.append((case.found_in, 'true')) -%}{%- endfor -%}
        {#- An event of which the JSON is stored is a finding of the reference from event_json. -#}
        {%- if reference.to == 'events.event_id' and reference.table != 'event_json' -%}{%- do names.append(('event_json.event_id', 'true')) -%}{%- endif -%}
        {%- set bits = [] -%}
        {%- for name in names -%}
            {%- if name not in keys -%}{%- do keys.append(name) -%}{%- endif -%}
            {%- do bits.append(2 ** keys.index(name)) -%}
        {%- endfor -%}
        {%- do masks.append({'number': reference.number, 'referring': bits[0], 'present': bits[1:] | unique | sum}) -%}
    {%- endfor -%}
    {%- for name, rows in keys -%}
        {%- set table, column = name.split('.') -%}
        {%- do places.append({'name': name, 'table': table, 'column': column, 'rows': rows, 'mask': 2 ** loop.index0}) -%}
    {%- endfor -%}
    {%- if places | length > 63 -%}
        {{ exceptions.raise_compiler_error("The references name more than 63 places, but a mask has 63 bits.") }}
    {%- endif -%}
    {{- return({'places': places, 'masks': masks}) -}}
{%- endmacro %}


{# SQL: a hash of a value, by which values of all columns are compared; NULL for NULL. #}
{% macro value_hash(column) -%}
    if({{ column }} is null, null, xxhash64(string({{ column }})))
{%- endmacro %}


{# The rows of a relation whose value in `column` has a hash in `keys`; all rows if `keys` is none. #}
{% macro rows_with_value(relation, column, keys) -%}
    {%- if keys is none -%}
        {{ relation }}
    {%- else -%}
        (select * from {{ relation }} where {{ value_hash(column) }} in (select value_hash from {{ keys }}))
    {%- endif -%}
{%- endmacro %}


{# SQL: the values of a reference. Columns: reference (its number), id, room_id and event_id (of the referring row; NULL
   if its table has no such column). #}
{% macro referring_values(reference, relation) -%}
    {%- set has_event = 'event_id' in reference.columns and reference.column != 'room_id' -%}
    select
        {{ reference.number }} as reference,
        string({{ reference.column }}) as id,
        {{ 'room_id' if 'room_id' in reference.columns else 'cast(null as string)' }} as room_id,
        {{ 'event_id' if has_event else 'cast(null as string)' }} as event_id
    from {{ relation }}
    where {{ reference.column }} is not null and {{ reference.rows or 'true' }}
{%- endmacro %}
