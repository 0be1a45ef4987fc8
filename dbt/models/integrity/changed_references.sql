{{ config(materialized='affected_keys') }}
{%- set tables = referenced_tables(changes=true) -%}
{%- set places = reference_places(declared_references()).places -%}
-- Values of the columns that references name, in changed rows.
{% for place in places | unique(attribute='name') -%}
select {{ value_hash(place.column) }} as value_hash from {{ tables[place.table] }} where {{ place.column }} is not null
{{ "union" if not loop.last }}
{% else -%}
select cast(null as bigint) as value_hash where false
{%- endfor -%}
