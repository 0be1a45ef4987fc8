{# The server part of a Matrix ID: the text after the first colon. #}
{% macro server_name(matrix_id) -%}
    substr({{ matrix_id }}, instr({{ matrix_id }}, ':') + 1)
{%- endmacro %}
