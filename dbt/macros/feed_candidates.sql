{# Events that feeds may contain: those with a positive stream ID. `nth` is 1 for the newest event of its room. #}
{% macro feed_candidates() -%}
    select
        event_id,
        room_id,
        stream_ordering,
        instance_name,
        row_number() over (partition by room_id order by stream_ordering desc) as nth
    from {{ ref('events') }}
    where stream_ordering > 0 and not rejected and not outlier
{%- endmacro %}
