{# The time of milliseconds since the epoch; NULL after the year 9999, which readers cannot represent. #}
{% macro to_timestamp(milliseconds) -%}
    case when {{ milliseconds }} between 0 and 253402300799999 then timestamp_millis({{ milliseconds }}) end
{%- endmacro %}
