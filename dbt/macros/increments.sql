{#
    Which rows of a model with `increment_by` are made anew, and which of other tables are read for them. Of a model that
    is made whole, the latter only.

    spark_apps/synapse_lakehouse/modelling/concerned finds that before the model's turn comes, and leaves views
    `<model>_<name>`: `replaced` has the keys of rows that may be others than before, or gone, if some may stay: they were
    taken away; `read_<table>` the rows of a table that are read to make them; `newer_<table>` rows of files that came
    since, where others may be read, too.
#}

{# The rows of a table that are read to make rows: where such were found, no others. #}
{% macro each_row_of(relation) -%}
    (select * from {{ relation }} {{ of_what_was_found() }})
{%- endmacro %}


{% macro of_what_was_found() -%}
    /* of what was found */
{%- endmacro %}


{# Behind a common table expression that others name several times: an increment finds its rows once. #}
{% macro found_once(name) -%}
    /* found once: {{ name }} */
{%- endmacro %}


{#
    Names of what was found of the model that is being made; none where it has to be made of everything. `anew` alone where
    nobody knows whether rows were taken away.
#}
{% macro found() -%}
    {%- set names = run_query("set " ~ setting_of_found()).columns[1].values()[0] -%}
    {{- return(names.split(',') if names != '<undefined>' else []) -}}
{%- endmacro %}


{# Whether rows of the table may be missing that were there when the run came to dbt. #}
{% macro may_lack_rows(found) -%}
    {{- return('replaced' in found or 'anew' in found) -}}
{%- endmacro %}


{% macro setting_of_found() -%}
    synapse_lakehouse.found.{{ model.name }}
{%- endmacro %}


{# The view of something that was found. #}
{% macro view_of(name) -%}
    {{ model.name }}_{{ name }}
{%- endmacro %}


{# The SQL of a model that makes its rows of what was found. #}
{% macro made_of_found(sql, found) -%}
    {%- set made = namespace(sql=sql) -%}
    {%- for id in model.depends_on.nodes -%}
        {%- set relation = (graph.sources.get(id) or graph.nodes.get(id)).relation_name -%}
        {%- set table = relation.split('.')[-1] | replace('`', '') -%}
        {%- set all_rows = "select * from " ~ relation ~ " " ~ of_what_was_found() -%}
        {%- if 'read_' ~ table in found -%}
            {%- set made.sql = made.sql | replace(all_rows, "select * from " ~ view_of('read_' ~ table)) -%}
        {%- elif 'newer_' ~ table in found -%}
            {%- set made.sql = made.sql | replace(all_rows, newer_first(relation, view_of('newer_' ~ table))) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if of_what_was_found() in made.sql -%}
        {{- exceptions.raise_compiler_error("What " ~ model.name ~ " reads of a table was not found: see modelling/concerned.") -}}
    {%- endif -%}
    {%- for name in modules.re.findall(found_once('(\\w+)') | replace('*', '[*]'), made.sql) -%}
        {%- set before, after = made.sql.split(found_once(name)) -%}
        {%- do keep(view_of(name), before ~ " select * from " ~ name) -%}
        {%- do graph.setdefault('kept for ' ~ model.unique_id, []).append(view_of(name)) -%}
        {%- set made.sql = "with " ~ name ~ " as (select * from " ~ view_of(name) ~ ")" ~ after -%}
    {%- endfor -%}
    {{- return(made.sql) -}}
{%- endmacro %}


{#
    Rows of a table, which has the model's key, with the keys that are replaced: those in files which came since the model
    was built, and only those from elsewhere that are not among them. If there are none, Spark finds that out before it
    begins, and leaves the table alone.
#}
{% macro newer_first(relation, newer) -%}
    {%- set by, replaced = config.get('increment_by'), view_of('replaced') -%}
    select * from {{ newer }} where {{ by }} in (select {{ by }} from {{ replaced }})
    union all
    select * from {{ relation }}
    where {{ by }} in (select {{ by }} from {{ replaced }} left anti join {{ newer }} using ({{ by }}))
{%- endmacro %}


{#
    Keep rows in Spark's cache under a name, which goes to its disk with what has no place in memory.

    A statement finds them there by the plan that they were made by. Spark numbers the common table expressions of a whole
    statement, so that those of a view are others in each; two settings keep them out of the view's plan.
#}
{% macro keep(name, rows) -%}
    {%- set settings = ['spark.sql.legacy.storeAnalyzedPlanForView', 'spark.sql.legacy.inlineCTEInCommands'] -%}
    {%- for setting in settings -%}
        {%- do run_query("set " ~ setting ~ " = true") -%}
    {%- endfor -%}
    {%- do run_query("create or replace temporary view " ~ name ~ " as " ~ rows) -%}
    {%- for setting in settings -%}
        {%- do run_query("reset " ~ setting) -%}
    {%- endfor -%}
    {%- do run_query("cache table " ~ name) -%}
{%- endmacro %}


{# Give back what was found and is kept for a model that is made. #}
{% macro keep_no_more(found) -%}
    {%- for name in graph.pop('kept for ' ~ model.unique_id, []) -%}
        {%- do run_query("uncache table if exists " ~ name) -%}
        {#- Its plan holds the rows that were found. -#}
        {%- do run_query("drop view if exists " ~ name) -%}
    {%- endfor -%}
    {%- for name in found -%}
        {%- do run_query("drop view if exists " ~ view_of(name)) -%}
    {%- endfor -%}
    {%- if found -%}
        {%- do run_query("reset " ~ setting_of_found()) -%}
    {%- endif -%}
{%- endmacro %}
