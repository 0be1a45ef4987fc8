{# dbt's own `table` replaces at once what readers of main see, before any audit. Nobody gets to use it. #}
{% materialization table, adapter='spark' %}
    {{ exceptions.raise_compiler_error(model.name ~ " is a table, which replaces what readers see before the audit. Use replace_on_branch or incremental.") }}
{% endmaterialization %}
