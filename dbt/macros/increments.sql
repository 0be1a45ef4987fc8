{#
    Rows of a model with `increment_by` that are rebuilt, and rows of its inputs that are read for them. For a full build of
    the model, only the latter.

    synapse_lakehouse.dbt_build finds these rows before the model is built: `replaced` has the keys of rows that may have
    changed or been deleted; their old versions are already removed. `read_<table>` has the rows of an input to read.
    `newer_<table>` has rows of new files, if other rows may be read too.

    From these, DuckDB builds the model's rows, `made`, with the model's own SQL, which therefore must have the same meaning
    in Spark and in DuckDB (for example, state the place of NULLs in an order). Models that read JSON are built by Spark.
    Spark finds the rows in views `<model>_<name>`.
#}

{# The rows of an input to read: the found ones, if rows were found. #}
{% macro each_row_of(relation) -%}
    (select * from {{ relation }} {{ of_what_was_found() }})
{%- endmacro %}


{% macro of_what_was_found() -%}
    /* of what was found */
{%- endmacro %}


{#
    Names of the views with changed rows of the model; empty for a full build. Only `anew` if it is unknown whether rows were
    removed.
#}
{% macro found() -%}
    {%- set names = run_query("set " ~ setting_of_found()).columns[1].values()[0] -%}
    {{- return(names.split(',') if names != '<undefined>' else []) -}}
{%- endmacro %}


{# Whether the table may lack rows that it had at the begin of the build. #}
{% macro may_lack_rows(found) -%}
    {{- return('replaced' in found or 'anew' in found) -}}
{%- endmacro %}


{% macro setting_of_found() -%}
    synapse_lakehouse.found.{{ model.name }}
{%- endmacro %}


{# The view with this name of the model. #}
{% macro view_of(name) -%}
    {{ model.name }}_{{ name }}
{%- endmacro %}


{# The SQL that builds the model's rows from the found rows: only replaced rows, unless the build is full. #}
{% macro made_of_found(sql, found) -%}
    {%- if 'made' in found -%}
        {#- The rows come in many small batches, each of which would become a file. -#}
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
    Rows of a table with the model's key whose keys are replaced: first those in files that are newer than the model, then
    only the missing ones from other files. If none is missing, Spark does not read the other files.
#}
{% macro newer_first(relation, newer) -%}
    {%- set by, replaced = config.get('increment_by'), view_of('replaced') -%}
    select * from {{ newer }} where {{ by }} in (select {{ by }} from {{ replaced }})
    union all
    select * from {{ relation }}
    where {{ by }} in (select {{ by }} from {{ replaced }} left anti join {{ newer }} using ({{ by }}))
{%- endmacro %}


{# Release the found rows of a finished model. #}
{% macro give_back(found) -%}
    {%- for name in found -%}
        {%- do run_query("drop view if exists " ~ view_of(name)) -%}
    {%- endfor -%}
    {%- if found -%}
        {%- do run_query("reset " ~ setting_of_found()) -%}
    {%- endif -%}
{%- endmacro %}
