{#
    Replace a table's whole content in one commit on the run's branch; readers of main see the new content after
    publication. The table is created empty from the model's contract. A new column of the contract is added to the
    table at once (NULL on main until the next release); a removed column or another type is an error.

    Each snapshot records a fingerprint of its inputs: the model's SQL, and the fingerprints of the tables that it
    reads. A table whose inputs are the same is left unchanged. With `compared_by: rows` in `meta`, for small tables, the
    fingerprint is computed from the rows. Then models that read the table are rebuilt only when its rows change.

    With `affected_by` in `meta`, only affected rows are deleted and inserted, if they are few (`partial_build.sql`).

    With `clustered_by`, a column, rows with the same value are stored together, so that a query for one value reads
    little.
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

    {%- set table_exists = load_relation(this) is not none -%}
    {%- if not table_exists -%}
        {% call statement('create') %}{{ create_empty_table(target_relation) }}{% endcall %}
        {%- set table_columns = model.columns.keys() | list -%}
    {%- else -%}
        {%- set table_columns = evolved_columns(target_relation) -%}
    {%- endif -%}

    {%- do set_properties(target_relation) -%}

    {%- set branch = wap_branch() -%}
    {%- set affected = ref(config.meta_get('affected_by')) if config.meta_get('affected_by') else none -%}
    {%- set is_partial = affected is not none and is_partial_build(affected) -%}
    {%- set full_sql = full_build_sql() -%}
    {#- Models that read this model are built later in this invocation. A query of Iceberg's metadata takes most of a second. -#}
    {%- set fingerprints = graph.setdefault('built from ' ~ invocation_id, {}) -%}
    {%- set inputs = [table_columns | join(',')] -%}
    {%- if config.meta_get('compared_by') == 'rows' -%}
        {%- do inputs.extend(run_query(full_sql).rows | map('join', ' ')) -%}
    {%- else -%}
        {%- do inputs.append(full_sql) -%}
        {%- for id in input_nodes() -%}
            {%- set relation = (graph.sources.get(id) or graph.nodes.get(id)).relation_name -%}
            {%- do inputs.append(fingerprints.get(relation) or built_from(relation, branch)) -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set fingerprint = local_md5(inputs | join(' ')) -%}
    {%- do fingerprints.update({target_relation | string: fingerprint}) -%}
    {%- set is_unchanged = built_from(target_relation, branch) == fingerprint -%}
    {#- If a commit creates its branch, the totals of its Iceberg snapshot count from zero and are wrong. -#}
    {%- if table_exists and not is_unchanged and branch != '<undefined>' -%}
        {#- An earlier try of the run may have left some of its rows, so a partial build starts from the last release. -#}
        {%- do run_query(
            "alter table " ~ target_relation ~ " create "
            ~ ("or replace branch `" ~ branch ~ "` as of version " ~ of_snapshot(this, 'main', 'snapshot_id')
                if is_partial else "branch if not exists `" ~ branch ~ "`")
        ) -%}
    {%- endif -%}

    {%- set rows -%}
        with (`snapshot-property.built-from` = '{{ fingerprint }}', `snapshot-property.built-by` = '{{ rules_fingerprint() }}')
        {{ 'replace where true' if not is_partial }}
        select {{ table_columns | map('lower') | join(', ') }} from ({{ compiled_code }})
        {{ 'cluster by ' ~ config.get('clustered_by') if config.get('clustered_by') }}
    {%- endset -%}

    {%- if is_unchanged -%}
        {% call statement('main') %}select 'unchanged'{% endcall %}
    {%- else -%}
        {%- if is_partial -%}
            {%- set key = primary_key() -%}
            {% call statement('delete') %}
                delete from {{ target_relation }} where {{ key }} in (select {{ key }} from {{ affected }})
            {% endcall %}
        {%- endif -%}
        {% call statement('main') %}
            {{- get_assert_columns_equivalent(compiled_code) -}}
            insert into {{ target_relation }} {{ rows }}
        {% endcall %}
    {%- endif -%}

    {{ run_hooks(post_hooks) }}

    {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}


{# The fingerprint of a table's inputs at the start of dbt; without one, the ID of the table's Iceberg snapshot. #}
{% macro built_from(relation, branch) -%}
    {%- if relation | string in var('built_from') -%}
        {{- return(var('built_from')[relation | string] or "nothing") -}}
    {%- endif -%}
    {{- return(of_snapshot(relation, branch, "coalesce(summary['built-from'], string(snapshot_id))") or "nothing") -}}
{%- endmacro %}


{# A metadata column of the Iceberg snapshot that a reader on `branch` reads; none without a snapshot. #}
{% macro of_snapshot(relation, branch, column) -%}
    {%- set result = run_query(
        "select " ~ column ~ " from " ~ relation ~ ".refs join " ~ relation ~ ".snapshots using (snapshot_id)"
        ~ " where name in ('main', '" ~ branch ~ "') order by name = 'main' limit 1"
    ) -%}
    {{- return(result.columns[0].values()[0] if result.rows else none) -}}
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

    Iceberg's manifests contain minimum and maximum values of columns, except of columns with message content. Row
    groups of a clustered table are small, because a query reads only the row groups that can contain its value.
#}
{% macro set_properties(relation) -%}
    {%- set current = run_query("show tblproperties " ~ relation).rows -%}
    {%- set properties = {} -%}
    {%- for column in model.columns.values() if (column.meta or {}).get('holds_content') -%}
        {%- do properties.update({"write.metadata.metrics.column." ~ column.name: 'none'}) -%}
    {%- endfor -%}
    {%- if config.meta_get('affected_by') -%}
        {%- do properties.update({'write.delete.mode': 'merge-on-read'}) -%}
    {%- endif -%}
    {%- if config.get('clustered_by') -%}
        {%- do properties.update({'write.parquet.row-group-size-bytes': '4194304'}) -%}
    {%- endif -%}
    {%- for property, value in properties.items() if [property, value] not in current | map('list') | list -%}
        {%- do run_query("alter table " ~ relation ~ " set tblproperties ('" ~ property ~ "' = '" ~ value ~ "')") -%}
    {%- endfor -%}
{%- endmacro %}


{# Names of the table's columns, in the table's order, after the columns of the model's contract were added. #}
{% macro evolved_columns(relation) %}
    {%- set present = {} -%}
    {%- for column in adapter.get_columns_in_relation(relation) -%}
        {%- do present.update({column.name | lower: column.dtype | lower}) -%}
    {%- endfor -%}
    {%- set declared = {} -%}
    {%- set added = [] -%}
    {%- set refused = [] -%}
    {%- for column in model.columns.values() -%}
        {%- set name, type = column.name | lower, column.data_type | lower -%}
        {%- do declared.update({name: type}) -%}
        {%- if name not in present -%}
            {%- do added.append(column) -%}
        {%- elif present[name] != type -%}
            {%- do refused.append(name ~ " is " ~ present[name] ~ " in the table and " ~ type ~ " in the model") -%}
        {%- endif -%}
    {%- endfor -%}
    {%- for name in present if name not in declared -%}
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
    {{ return((present.keys() | list) + (added | map(attribute='name') | list)) }}
{% endmacro %}


{% macro sql_string(text) -%}
    '{{ text | trim | replace("\\", "\\\\") | replace("'", "\\'") | replace("\n", " ") }}'
{%- endmacro %}
