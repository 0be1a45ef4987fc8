{#
    A view is what a release says it is: its SQL is written to the release's row, and published with the tables that it
    reads. Here it is only tried, on the run's branch, and held to its contract.

    It has to be understood by Spark and DuckDB alike, and no model can read it: until the release it is not there.
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
