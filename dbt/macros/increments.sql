{#
    Which rows of a model with `increment_by` are made anew, and which of other tables are read for them.

    `what_changed_in_<model>` finds out, and leaves it in two steps: `replaced` has the keys of rows that may be others
    than before, or gone; `read` the keys that rows are read of, which are those and whatever they look up.
#}

{#
    The rows of a table that are read to make rows: of an increment, of what changed only. A table's key has to have the
    name that the model's has.
#}
{% macro each_row_of(relation) -%}
    (select * from {{ relation }} {{ of_what_changed() }})
{%- endmacro %}


{% macro of_what_changed() -%}
    /* of what changed */
{%- endmacro %}


{# Rows of a table of bronze that changed since the model was built, as they were and as they are: the columns that
   spark_apps/synapse_lakehouse/lake/increments.py names. #}
{% macro changed(table) -%}
    {{ model.name }}_changed_{{ table }}
{%- endmacro %}


{# The rows of a table as they were when the model was built. #}
{% macro former(relation) -%}
    (select * from {{ relation }} version as of {{ var('increments')[model.name][relation | string] }})
{%- endmacro %}


{# The rows of a step of finding out what changed. #}
{% macro step(name) -%}
    {{ model.name }}_step_{{ name }}
{%- endmacro %}


{#
    Take a step: its rows, of which there may be as many as the variable `little` says, become a view of nothing but them.
    A view of views would be worked out anew wherever it is named, and its plan grow with each step. They travel as base64,
    so that no id is ever SQL. After a step with more rows none is taken.
#}
{% macro take_step(name, columns, rows) -%}
    {%- set most = var('little') -%}
    {%- if graph['little changed in ' ~ model.unique_id] -%}
        {%- set found = run_query(
            "select count(*), base64(encode(to_json(collect_list(row)), 'utf-8'))"
            ~ " from (select struct(*) as row from (" ~ rows ~ ") limit " ~ (most + 1) ~ ")"
        ).rows[0] -%}
        {%- do graph.update({'little changed in ' ~ model.unique_id: found[0] <= most}) -%}
        {%- if found[0] <= most -%}
            {%- do run_query(
                "create or replace temporary view " ~ step(name) ~ " as select inline(from_json(decode(unbase64('"
                ~ found[1] ~ "'), 'utf-8'), 'array<struct<" ~ columns ~ ">>'))"
            ) -%}
            {%- set arrived = run_query("select count(*) from " ~ step(name)).rows[0][0] -%}
            {%- if arrived != found[0] -%}
                {{- exceptions.raise_compiler_error(
                    "Of what changed in " ~ model.name ~ ", " ~ arrived ~ " rows of " ~ found[0] ~ " arrived in step "
                    ~ name ~ ", so it was not built: it would keep rows that are no longer so."
                ) -}}
            {%- endif -%}
        {%- endif -%}
    {%- endif -%}
{%- endmacro %}


{# Whether what changed in the model was found, and is little enough to be made anew alone. #}
{% macro what_changed_is_little() -%}
    {%- do graph.update({'little changed in ' ~ model.unique_id: true}) -%}
    {%- do context['what_changed_in_' ~ model.name]() -%}
    {{- return(graph['little changed in ' ~ model.unique_id]) -}}
{%- endmacro %}


{% macro what_changed_in_event_fields() -%}
    {%- do run_query("create or replace temporary view " ~ step('replaced') ~ " as
        select event_id from " ~ changed('event_json') ~ "
        union
        select event_id from " ~ changed('events') ~ "
        union
        select event_id from " ~ source('synapse', 'events') ~ "
        where room_id in (select room_id from " ~ changed('rooms') ~ ")
    ") -%}
    {#- It is asked for several times, and looks through all events. -#}
    {%- do run_query("cache table " ~ step('replaced')) -%}
    {%- do run_query("create or replace temporary view " ~ step('read') ~ " as select * from " ~ step('replaced')) -%}
{%- endmacro %}
