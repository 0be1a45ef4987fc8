{#
    Incremental models. The key `affected_by` of `meta` names a model of the materialization `affected_keys`, which
    contains the keys of all rows that may differ from those of the last release. If these are few, replace_on_branch
    deletes the affected rows and inserts the rows that the model's SQL selects. The SQL calls is_partial_build to
    select only affected rows.
#}

{#
    Whether only a part of a model is built: the variable `changes_are_known` is true, the last release has the table,
    the table was built by the same rules, and the affected rows are at most the share `partial_build_share` of the rows
    of `whole`, by default of the model itself. This is decided once for each model.
#}
{% macro is_partial_build(affected, whole=this) -%}
    {%- if not execute or not var('changes_are_known') -%}
        {{- return(false) -}}
    {%- endif -%}
    {%- set plans = graph.setdefault('partial builds ' ~ invocation_id, {}) -%}
    {%- if model.unique_id not in plans -%}
        {#- The SQL that full_build_sql renders calls this macro too. -#}
        {%- do plans.update({model.unique_id: false}) -%}
        {%- set is_same = load_relation(this) is not none and of_snapshot(this, 'main', "summary['built-by']") == rules_fingerprint() -%}
        {%- do plans.update({
            model.unique_id: is_same and count_rows(affected) <= count_rows(whole) * var('partial_build_share')
        }) -%}
    {%- endif -%}
    {{- return(plans[model.unique_id]) -}}
{%- endmacro %}


{#
    The rows of a relation whose column `key` is in the column `of` of the relation `keys`; all rows if `keys` is none.
    `hint`: a hint that broadcast_if_few returns.
#}
{% macro rows_with(relation, keys, key='event_id', of=none, hint='') -%}
    {%- if keys is none -%}
        {{ relation }}
    {%- else -%}
        (select * from {{ relation }} where {{ key }} in (select {{ hint }} {{ of or key }} from {{ keys }}))
    {%- endif -%}
{%- endmacro %}


{# The rows of the state groups that changed; all rows if the model is built in full. #}
{% macro rows_of_changed_groups() -%}
    {%- set changed, pieces = ref('changed_state_groups'), source('synapse', 'state_groups_state') -%}
    {%- if is_partial_build(changed, source('synapse', 'state_groups')) -%}
        {#- Most changed groups are new, so Iceberg skips most data files. -#}
        {%- set first = run_query("select coalesce(min(state_group), 0) from " ~ changed).columns[0].values()[0] -%}
        (select * from {{ pieces }} where state_group in (select state_group from {{ changed }}) and state_group >= {{ first }})
    {%- else -%}
        {{ pieces }}
    {%- endif -%}
{%- endmacro %}


{#
    A hint to broadcast `name`, a query of keys that follow from the rows of `tables`. Spark does not know that such a query
    returns few rows, and would sort the large table in which they are searched. No hint if there are more than `most`
    rows: 500,000 IDs, or 4 million numbers, need about 100 MB of the driver's memory.
#}
{% macro broadcast_if_few(name, tables, most=500000) -%}
    {#- A unit test has no tables. -#}
    {%- if execute and var('changes_are_known') and not tables[0].is_cte -%}
        {%- set counts = graph.setdefault('keys ' ~ invocation_id, {}) -%}
        {%- set rows = [] -%}
        {%- for table in tables | map('string') -%}
            {%- do rows.append(counts[table] if table in counts else count_rows(table)) -%}
            {%- do counts.update({table: rows[-1]}) -%}
        {%- endfor -%}
        {%- if rows | sum <= most -%}
            /*+ broadcast({{ name }}) */
        {%- endif -%}
    {%- endif -%}
{%- endmacro %}


{# The SQL of the full build of the model. #}
{% macro full_build_sql() -%}
    {%- if not config.meta_get('affected_by') -%}
        {{- return(compiled_code) -}}
    {%- endif -%}
    {%- set plans = graph.setdefault('partial builds ' ~ invocation_id, {}) -%}
    {%- set is_partial = plans.get(model.unique_id, false) -%}
    {%- do plans.update({model.unique_id: false}) -%}
    {%- set full_sql = render(model.raw_code) -%}
    {%- do plans.update({model.unique_id: is_partial}) -%}
    {{- return(full_sql) -}}
{%- endmacro %}


{# Fingerprint of the rules that build a table: the model's columns and SQL, and the rules of the models that it reads. #}
{% macro rules_fingerprint() -%}
    {%- set rules = graph.setdefault('built by ' ~ invocation_id, {}) -%}
    {%- if model.unique_id not in rules -%}
        {%- set inputs = [model.columns.keys() | join(','), full_build_sql()] -%}
        {%- for id in input_nodes() if id in graph.nodes -%}
            {%- do inputs.append(rules.get(id) or of_snapshot(graph.nodes[id].relation_name, wap_branch(), "summary['built-by']")) -%}
        {%- endfor -%}
        {%- do rules.update({model.unique_id: local_md5(inputs | join(' '))}) -%}
    {%- endif -%}
    {{- return(rules[model.unique_id]) -}}
{%- endmacro %}


{#
    Sorted IDs of the nodes from which the model is built, without its affected keys, which only select rows. The SQL
    of an ephemeral model is a part of this model's SQL, so the list has the nodes from which the ephemeral model is built.
#}
{% macro input_nodes(ephemeral=none) -%}
    {%- set ids = [] -%}
    {%- for id in (ephemeral or model).depends_on.nodes -%}
        {%- set node = graph.sources.get(id) or graph.nodes.get(id) -%}
        {%- if node.config.get('materialized') == 'ephemeral' -%}
            {%- do ids.extend(input_nodes(node)) -%}
        {%- elif node.get('source_name') != 'changes' and node.config.get('materialized') != 'affected_keys' -%}
            {%- do ids.append(id) -%}
        {%- endif -%}
    {%- endfor -%}
    {{- return(ids | unique | sort) -}}
{%- endmacro %}


{# The column that is the primary key of the model. #}
{% macro primary_key() -%}
    {{- return((config.get('meta') or {}).primary_key[0]) -}}
{%- endmacro %}


{# The values of a column of a table, without repetitions; none in a unit test, which has no tables, and in a parse. #}
{% macro distinct_values(relation, column) -%}
    {%- if execute and not relation.is_cte -%}
        {{- return(run_query("select distinct " ~ column ~ " from " ~ relation ~ " order by 1").columns[0].values() | list) -}}
    {%- endif -%}
    {{- return(none) -}}
{%- endmacro %}


{% macro count_rows(relation) -%}
    {{- return(run_query("select count(*) from " ~ relation).columns[0].values()[0] | int) -}}
{%- endmacro %}


{% macro wap_branch() -%}
    {{- return(run_query("set spark.wap.branch").columns[1].values()[0]) -}}
{%- endmacro %}


{#
    A table of the keys of affected rows, or of the rows with these keys that other models read. Each run replaces it in one
    commit on the run's branch. If the variable `changes_are_known` is false, all models are built in full, and the table is
    not changed.
#}
{% materialization affected_keys, adapter='spark', supported_languages=['sql'] %}
    {%- set target_relation = this.incorporate(type='table') -%}
    {% call statement('create') %}{{ create_empty_table(target_relation) }}{% endcall %}
    {%- if not var('changes_are_known') -%}
        {% call statement('main') %}select 'all rows are affected'{% endcall %}
    {%- else -%}
        {%- set table_columns = evolved_columns(target_relation) -%}
        {% call statement('main') %}
            {{- get_assert_columns_equivalent(compiled_code) -}}
            insert into {{ target_relation }} replace where true
            select {{ table_columns | join(', ') }} from ({{ compiled_code }})
        {% endcall %}
    {%- endif -%}
    {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
