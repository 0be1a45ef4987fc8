{#
    Replace a table's whole content in one commit on the run's branch; readers of main see it after publication. The
    table is created empty from the model's contract. A new column of the contract is added to the table at once (NULL on
    main until the next release); a removed column or another type is an error.

    Each Iceberg snapshot records the fingerprint of the model's SQL and of its inputs. A table with unchanged fingerprints
    is not rebuilt. With `compared_by: rows`, for small tables, the fingerprint is that of the rows, so that tables that
    read it are rebuilt only if the rows changed.

    With `increment_by`, the key of its rows, only changed rows of a large table are rebuilt, if they were found
    (`increments.sql`) and the SQL is unchanged; their old versions are already removed. Otherwise all rows are rebuilt.

    With `clustered_by`, a column, rows with the same value are stored together, so that a query of one value reads little.
#}
{% materialization replace_on_branch, adapter='spark', supported_languages=['sql'] %}
    {%- if not config.get('contract').enforced or not model.columns -%}
        {{ exceptions.raise_compiler_error("The materialization replace_on_branch needs an enforced contract: list the columns of " ~ model.name ~ " with their data_type.") }}
    {%- endif -%}
    {%- if config.get('tblproperties', {}).get('write.wap.enabled') != 'true' -%}
        {{ exceptions.raise_compiler_error(model.name ~ " must keep write.wap.enabled: 'true' in tblproperties, or it would be written to main before its audit.") }}
    {%- endif -%}
    {%- set target_relation = this.incorporate(type='table') -%}

    {{ run_hooks(pre_hooks) }}

    {%- set is_there = load_relation(this) is not none -%}
    {%- if not is_there -%}
        {% call statement('create') %}{{ create_empty_table(target_relation) }}{% endcall %}
        {%- set table_columns = model.columns.keys() | list -%}
    {%- else -%}
        {%- set table_columns = evolved_columns(target_relation) -%}
    {%- endif -%}

    {%- do set_properties(target_relation) -%}

    {%- set branch = run_query("set spark.wap.branch").columns[1].values()[0] -%}
    {#- Models that read this model are built later in this invocation, and a query of Iceberg takes most of a second. -#}
    {%- set told = graph.setdefault('made_of ' ~ invocation_id, {}) -%}
    {%- set ingredients = [table_columns | join(',')] -%}
    {%- if config.get('compared_by') == 'rows' -%}
        {%- do ingredients.extend(run_query(compiled_code).rows | map('join', ' ')) -%}
    {%- else -%}
        {%- do ingredients.append(compiled_code) -%}
        {#- dbt has them in the order of a set, which differs between processes. -#}
        {%- for id in model.depends_on.nodes | sort -%}
            {%- set relation = (graph.sources.get(id) or graph.nodes.get(id)).relation_name -%}
            {%- do ingredients.append(told.get(relation) or made_of(relation, branch)) -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set made_now = local_md5(ingredients | join(' ')) -%}

    {%- do told.update({target_relation | string: made_now}) -%}
    {#- The rules include those of the models that this model reads. -#}
    {%- set rules = graph.setdefault('made_by ' ~ invocation_id, {}) -%}
    {%- set made_by = [table_columns | join(','), compiled_code] -%}
    {%- for id in model.depends_on.nodes | sort if id in graph.nodes -%}
        {%- do made_by.append(rules.get(id) or said(graph.nodes[id].relation_name, branch, 'built-by')) -%}
    {%- endfor -%}
    {%- set made_by = local_md5(made_by | join(' ')) -%}
    {%- do rules.update({model.unique_id: made_by}) -%}
    {%- set cluster = config.get('clustered_by') -%}
    {%- set found_of_it = found() if model.name in var('read_from') else [] -%}
    {%- set properties = ["`snapshot-property.built-from` = '" ~ made_now ~ "'", "`snapshot-property.built-by` = '" ~ made_by ~ "'"] -%}
    {%- if model.name in var('read_from') -%}
        {%- do properties.append("`snapshot-property.read-from` = '" ~ var('read_from')[model.name] ~ "'") -%}
    {%- endif -%}

    {%- set is_unchanged = made_of(target_relation, branch) == made_now and not may_lack_rows(found_of_it) -%}
    {#- A commit that creates its branch counts from zero, so the totals of its Iceberg snapshot would be wrong. -#}
    {%- if is_there and not is_unchanged and branch != '<undefined>' -%}
        {%- do run_query("alter table " ~ target_relation ~ " create branch if not exists `" ~ branch ~ "`") -%}
    {%- endif -%}

    {%- if is_unchanged -%}
        {% call statement('main') %}select 'unchanged'{% endcall %}
    {%- elif 'replaced' in found_of_it and said(target_relation, branch, 'built-by') == made_by -%}
        {% call statement('main') %}
            insert into {{ target_relation }} with ({{ properties | join(', ') }})
            select {{ table_columns | map('lower') | join(', ') }}
            from (
                {{ made_of_found(compiled_code, found_of_it) }}
            )
            {{ 'cluster by ' ~ cluster if cluster }}
        {% endcall %}
    {%- else -%}
        {% call statement('main') %}
            {{- get_assert_columns_equivalent(compiled_code) -}}
            insert into {{ target_relation }} with ({{ properties | join(', ') }}) replace where true
            select {{ table_columns | map('lower') | join(', ') }}
            from (
                {{ made_of_found(compiled_code, found_of_it) if found_of_it and not may_lack_rows(found_of_it) else compiled_code }}
            )
            {{ 'cluster by ' ~ cluster if cluster }}
        {% endcall %}
    {%- endif -%}
    {%- do give_back(found_of_it) -%}

    {{ run_hooks(post_hooks) }}

    {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{#
    Fingerprint of a table's rows on `branch` at the begin of the build; its Iceberg snapshot ID if none is recorded. The
    variable `made_of` is unset when dbt runs stand-alone.
#}
{% macro made_of(relation, branch) -%}
    {%- if relation | string in var('made_of') -%}
        {{- return(var('made_of')[relation | string] or "nothing") -}}
    {%- endif -%}
    {{- return(of_snapshot(relation, branch, "coalesce(summary['built-from'], string(snapshot_id))") or "nothing") -}}
{%- endmacro %}


{# The property `name` of a table's Iceberg snapshot on `branch`. #}
{% macro said(relation, branch, name) -%}
    {{- return(of_snapshot(relation, branch, "summary['" ~ name ~ "']")) -}}
{%- endmacro %}


{% macro of_snapshot(relation, branch, what) -%}
    {%- set found = run_query(
        "select " ~ what ~ " from " ~ relation ~ ".refs join " ~ relation ~ ".snapshots using (snapshot_id)"
        ~ " where name in ('main', '" ~ branch ~ "') order by name = 'main' limit 1"
    ) -%}
    {{- return(found.columns[0].values()[0] if found.rows else none) -}}
{%- endmacro %}


{# `if not exists`: a table of an earlier, failed run is as good as a new one. #}
{% macro create_empty_table(relation) -%}
    create table if not exists {{ relation }} (
        {%- for column in model.columns.values() %}
        {{ column.name }} {{ column.data_type }} comment {{ sql_string(column.description) }}
        {{- "," if not loop.last }}
        {%- endfor %}
    )
    {{ file_format_clause() }}
    {{ partition_cols(label="partitioned by") }}
    comment {{ sql_string(model.description) }}
    {{ tblproperties_clause() }}
{%- endmacro %}


{#
    Set the table properties that follow from the model's columns and configuration.

    Iceberg's manifests contain minimum and maximum values of columns, except of columns with message content. Row groups of
    a clustered table are small, because a query reads only those that can contain its value.
#}
{% macro set_properties(relation) -%}
    {%- set known = run_query("show tblproperties " ~ relation).rows -%}
    {%- set wanted = {} -%}
    {%- for column in model.columns.values() if (column.meta or {}).get('holds_content') -%}
        {%- do wanted.update({"write.metadata.metrics.column." ~ column.name: 'none'}) -%}
    {%- endfor -%}
    {%- if config.get('clustered_by') -%}
        {%- do wanted.update({'write.parquet.row-group-size-bytes': '4194304'}) -%}
    {%- endif -%}
    {%- for property, value in wanted.items() if [property, value] not in known | map('list') | list -%}
        {%- do run_query("alter table " ~ relation ~ " set tblproperties ('" ~ property ~ "' = '" ~ value ~ "')") -%}
    {%- endfor -%}
{%- endmacro %}


{# Names of the table's columns, in the table's order, after the columns of the model's contract were added. #}
{% macro evolved_columns(relation) %}
    {%- set found = {} -%}
    {%- for column in adapter.get_columns_in_relation(relation) -%}
        {%- do found.update({column.name | lower: column.dtype | lower}) -%}
    {%- endfor -%}
    {%- set declared = {} -%}
    {%- set added = [] -%}
    {%- set refused = [] -%}
    {%- for column in model.columns.values() -%}
        {%- set name, type = column.name | lower, column.data_type | lower -%}
        {%- do declared.update({name: type}) -%}
        {%- if name not in found -%}
            {%- do added.append(column) -%}
        {%- elif found[name] != type -%}
            {%- do refused.append(name ~ " is " ~ found[name] ~ " in the table and " ~ type ~ " in the model") -%}
        {%- endif -%}
    {%- endfor -%}
    {%- for name in found if name not in declared -%}
        {%- do refused.append(name ~ " is in the table and no longer in the model") -%}
    {%- endfor -%}
    {%- if refused -%}
        {{ exceptions.raise_compiler_error(
            relation ~ " was not rebuilt: " ~ refused | join("; ") ~ ". Readers and earlier releases rely on its "
            ~ "columns, so they are only ever added. Give the model a new name, or put the column back."
        ) }}
    {%- endif -%}
    {%- if added -%}
        {% call statement('add_columns') %}
            alter table {{ relation }} add columns (
                {%- for column in added %}
                {{ column.name }} {{ column.data_type }} comment {{ sql_string(column.description) }}
                {{- "," if not loop.last }}
                {%- endfor %}
            )
        {% endcall %}
    {%- endif -%}
    {{ return((found.keys() | list) + (added | map(attribute='name') | list)) }}
{% endmacro %}


{% macro sql_string(text) -%}
    '{{ text | trim | replace("\\", "\\\\") | replace("'", "\\'") | replace("\n", " ") }}'
{%- endmacro %}
