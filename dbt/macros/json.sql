{# A boolean of a JSON text; NULL where the key is absent. #}
{% macro json_boolean(text, path) -%}
    (get_json_object({{ text }}, '$.{{ path }}') = 'true')
{%- endmacro %}


{# Whether a client's JSON says yes, as Python takes it: anything but false, nothing and empty values. NULL without the key. #}
{% macro json_truth(text, path) -%}
    (get_json_object({{ text }}, '$.{{ path }}') not in ('false', '0', '0.0', '', '[]', '{}'))
{%- endmacro %}
