{# A history visibility as Synapse understands it: what is missing or invalid is `shared`. #}
{% macro understood_visibility(value) -%}
    case when {{ value }} in ('world_readable', 'invited', 'joined') then {{ value }} else 'shared' end
{%- endmacro %}


{# A membership as Synapse understands that of a membership event: what is missing or invalid is `leave`. #}
{% macro understood_membership(value) -%}
    case when {{ value }} in ('join', 'invite', 'knock', 'ban') then {{ value }} else 'leave' end
{%- endmacro %}


{# The first of `order` that is among two values. #}
{% macro first_of(order, one, other) -%}
    case
        {%- for value in order %}
        when {{ one }} = '{{ value }}' or {{ other }} = '{{ value }}' then '{{ value }}'
        {%- endfor %}
    end
{%- endmacro %}


{# Whether a Matrix id is one of this server. #}
{% macro is_local(matrix_id) -%}
    {{ server_name(matrix_id) }} = '{{ var("server_name") | replace("'", "") }}'
{%- endmacro %}
