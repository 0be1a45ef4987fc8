{#
    The SQL of a view is written to the release's row, and published with the tables that the view reads. This
    materialization only validates it, on the run's branch, against its contract.

    Spark and DuckDB must both understand the SQL. No model can read a view, because it exists only after the release.
#}
{% materialization view, adapter='spark' %}
    {%- if not config.get('contract').enforced or not model.columns -%}
        {{ exceptions.raise_compiler_error("A view needs an enforced contract: list the columns of " ~ model.name ~ " with their data_type.") }}
    {%- endif -%}
    {% call statement('main') %}
        {{- get_assert_columns_equivalent(compiled_code) -}}
        select 'tried'
    {% endcall %}
    {{ return({'relations': [this.incorporate(type='view')]}) }}
{% endmaterialization %}
