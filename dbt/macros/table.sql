{# dbt's own `table` would replace the tables of main's readers before any audit, so it is an error. #}
{% materialization table, adapter='spark' %}
    {{ exceptions.raise_compiler_error(model.name ~ " is a table, which replaces what readers see before the audit. Use replace_on_branch.") }}
{% endmaterialization %}
