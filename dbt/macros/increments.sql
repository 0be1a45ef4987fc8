{#
    Which rows of a model with `increment_by` are made anew, and which of other tables are read for them. Of a model that
    is made whole, the latter only.

    src/synapse_lakehouse/dbt_build/project/concerned finds that before the model's turn comes: `replaced` has the keys of
    rows that may be others than before, or gone, if some may stay: they were taken away; `read_<table>` the rows of a
    table that are read to make them; `newer_<table>` rows of files that came since, where others may be read, too.

    Of these DuckDB makes the rows of a model, `made`, by the model's own SQL, which therefore has to mean the same to Spark
    and to DuckDB (say where NULLs come in an order, for one); not of a model that reads JSON: Spark makes those. What is
    left to do for Spark it finds in views `<model>_<name>`.
#}

{# The rows of a table that are read to make rows: where such were found, no others. #}
{% macro each_row_of(relation) -%}
    (select * from {{ relation }} {{ of_what_was_found() }})
{%- endmacro %}


{% macro of_what_was_found() -%}
    /* of what was found */
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


{# The SQL that makes the rows of a model of what was found: of those that are replaced, if some may stay. #}
{% macro made_of_found(sql, found) -%}
    {%- if 'made' in found -%}
        {#- They come in many small batches, each of which would be a file. -#}
        {{- return("select " ~ ("" if config.get('clustered_by') else "/*+ coalesce(1) */ ") ~ "* from " ~ view_of('made')) -}}
    {%- endif -%}
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
    {%- set by = config.get('increment_by') -%}
    {{- return("select * from (" ~ made.sql ~ ") where " ~ by ~ " in (select " ~ by ~ " from " ~ view_of('replaced') ~ ")") -}}
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


{# Give back what was found of a model that is made. #}
{% macro give_back(found) -%}
    {%- for name in found -%}
        {%- do run_query("drop view if exists " ~ view_of(name)) -%}
    {%- endfor -%}
    {%- if found -%}
        {%- do run_query("reset " ~ setting_of_found()) -%}
    {%- endif -%}
{%- endmacro %}
