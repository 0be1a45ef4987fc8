{# The server part of a Matrix id: all that follows the first colon. #}
{% macro server_name(matrix_id) -%}
    substr({{ matrix_id }}, instr({{ matrix_id }}, ':') + 1)
{%- endmacro %}
