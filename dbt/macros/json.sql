{#
    JSON with strings truncated after 10,000 characters. Spark cannot read a text with a key of more than 50,000
    characters, which an event may have. No column needs the removed parts.
#}
{% macro readable_json(text) -%}
    case
        when octet_length({{ text }}) > 50000 then regexp_replace(
            {{ text }}, r'"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\.){0,10000}+)(?:[^"\\]|\\.)*+"', '"$1"'
        )
        else {{ text }}
    end
{%- endmacro %}


{#
    Whether a value of a client's JSON (a variant) is true in Python: it is not false, null, zero or empty. NULL if
    the value is missing.
#}
{% macro json_truth(document, path) -%}
    {%- set value = "variant_get(" ~ document ~ ", '$." ~ path ~ "')" -%}
    case split_part(schema_of_variant({{ value }}), '<', 1)
        when 'VOID' then false
        when 'BOOLEAN' then cast({{ value }} as boolean)
        when 'STRING' then cast({{ value }} as string) <> ''
        when 'ARRAY' then to_json({{ value }}) <> '[]'
        when 'OBJECT' then to_json({{ value }}) <> '{}'
        else cast({{ value }} as double) <> 0
    end
{%- endmacro %}
