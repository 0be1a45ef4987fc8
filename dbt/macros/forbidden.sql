{# dbt's own `table` and `view` replace at once what readers of main see, before any audit. Nobody gets to use them. #}
{% materialization table, adapter='spark' %}
    {{ exceptions.raise_compiler_error(model.name ~ " is a table, which replaces what readers see before the audit. Use rebuild or incremental.") }}
{% endmaterialization %}

{% materialization view, adapter='spark' %}
    {{ exceptions.raise_compiler_error(model.name ~ " is a view, which replaces what readers see before the audit. Use rebuild or incremental.") }}
{% endmaterialization %}
