{# SQL: a piece of state as text, in which a space separates the type and the state key. #}
{% macro piece_of_state(type, state_key) -%}
    replace(replace({{ type }}, '%', '%25'), ' ', '%20') || ' ' || {{ state_key }}
{%- endmacro %}
