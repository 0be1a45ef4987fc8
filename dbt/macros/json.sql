{# A boolean of a JSON text; NULL where the key is absent. #}
{% macro json_boolean(text, path) -%}
    (get_json_object({{ text }}, '$.{{ path }}') = 'true')
{%- endmacro %}
