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


{# The SQL of a model that makes the rows of an increment. #}
{% macro in_part(sql) -%}
    {%- set made = namespace(sql=sql) -%}
    {%- for relation, rows in graph.get('read for ' ~ model.unique_id, {}).items() -%}
        {%- set made.sql = made.sql | replace("select * from " ~ relation ~ " " ~ of_what_changed(), rows) -%}
    {%- endfor -%}
    {{- return(made.sql | replace(of_what_changed(), only_what_is_read())) -}}
{%- endmacro %}


{% macro only_what_is_read() -%}
    {%- set by = config.get('increment_by') -%}
    where {{ by }} in (select {{ by }} from {{ step('read') }})
{%- endmacro %}


{# Say otherwise how the rows of a table are found that an increment reads. #}
{% macro read(relation, rows) -%}
    {%- do graph.setdefault('read for ' ~ model.unique_id, {}).update({relation | string: rows}) -%}
{%- endmacro %}


{# Read a table once. A model that names its rows several times would have the whole of it looked through as often. #}
{% macro read_once(relation) -%}
    {%- if graph['little changed in ' ~ model.unique_id] -%}
        {%- set rows = step('read_of_' ~ relation.identifier) -%}
        {%- do keep(rows, "select * from " ~ relation ~ " " ~ only_what_is_read()) -%}
        {%- do read(relation, "select * from " ~ rows) -%}
    {%- endif -%}
{%- endmacro %}


{#
    Read of a table the rows that are in files which came since the model was built, and only those from elsewhere that are
    not among them. If there are none, Spark finds that out before it begins, and leaves the table alone.
#}
{% macro read_newer_first(relation) -%}
    {%- set newer = model.name ~ '_newer_' ~ relation.identifier -%}
    {%- set by = config.get('increment_by') -%}
    {%- do read(relation, "
        select * from " ~ newer ~ " " ~ only_what_is_read() ~ "
        union all
        select * from " ~ relation ~ "
        where " ~ by ~ " in (select " ~ by ~ " from " ~ step('read') ~ " left anti join " ~ newer ~ " using (" ~ by ~ "))
    ") -%}
{%- endmacro %}


{# Keep rows in Spark's cache under a name, which goes to its disk with what has no place in memory. #}
{% macro keep(name, rows) -%}
    {%- do run_query("create or replace temporary view " ~ name ~ " as " ~ rows) -%}
    {%- do run_query("cache table " ~ name) -%}
    {%- do graph.setdefault('kept for ' ~ model.unique_id, []).append(name) -%}
{%- endmacro %}


{# Give back what is kept for a model that is made. #}
{% macro keep_no_more() -%}
    {%- for name in graph.pop('kept for ' ~ model.unique_id, []) -%}
        {%- do run_query("uncache table if exists " ~ name) -%}
    {%- endfor -%}
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
    {#- It is asked for several times, and looks through all events. -#}
    {%- do keep(step('replaced'), "
        select event_id from " ~ changed('event_json') ~ "
        union
        select event_id from " ~ changed('events') ~ "
        union
        select event_id from " ~ source('synapse', 'events') ~ "
        where room_id in (select room_id from " ~ changed('rooms') ~ ")
    ") -%}
    {%- do run_query("create or replace temporary view " ~ step('read') ~ " as select * from " ~ step('replaced')) -%}
    {%- for relation in [source('synapse', 'event_json'), source('synapse', 'events')] -%}
        {%- do read_newer_first(relation) -%}
    {%- endfor -%}
{%- endmacro %}
