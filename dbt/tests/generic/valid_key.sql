{#
    No two rows have the same primary key. No column of the key is NULL, except those of `nullable_key`, and no column of
    `not_null`. The `meta` of the table declares its key.
#}
{% test valid_key(model, not_null=[]) %}
    {%- set nodes = ((graph.nodes.values() | list) + (graph.sources.values() | list)) if execute else [] -%}
    {%- for node in nodes if node.relation_name == model | string %}
        {%- set meta = node.config.meta %}
        {%- set key = meta.primary_key | join(', ') %}
    select {{ key }}, count(*) as number_of_rows
    from {{ model }}
    group by {{ key }}
    having count(*) > 1
        {%- for column in meta.primary_key if column not in meta.get('nullable_key', []) %}
        or {{ column }} is null
        {%- endfor %}
        {%- for column in not_null %}
        or count_if({{ column }} is null) > 0
        {%- endfor %}
    {%- endfor %}
{% endtest %}
