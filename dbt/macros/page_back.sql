{# A text as an SQL expression. Spark and DuckDB escape differently, and Spark replaces ${…} even in quotes. #}
{% macro text_value(text) -%}
    {%- set literal = namespace(text='') -%}
    {%- for character in text | string -%}
        {%- set code = {"'": 39, '\\': 92, '$': 36}.get(character) -%}
        {%- set literal.text = literal.text ~ ("' || chr(" ~ code ~ ") || '" if code else character) -%}
    {%- endfor -%}
    ('{{ literal.text }}')
{%- endmacro %}


{#
    A page of a room's history before a point: see _macros.yml.

    A token is the place after the event that it names, so a page backwards includes this event. The token before an
    event is smaller by one (synapse.storage.databases.main.stream).
#}
{% macro page_back(room_id, user_id, token=none, page_length=50) -%}
    {%- set position = modules.re.fullmatch('t([0-9]+)-(-?[0-9]+)', token | string) -%}
    {%- if token is not none and not position -%}
        {{ exceptions.raise_compiler_error(
            token ~ " is not a token. A page begins at a token such as t123-4567 (depth and stream_ordering of an event,"
            ~ " which is the page's first event) or, without a token, at the room's end."
        ) }}
    {%- endif -%}
    {%- if page_length is not integer or page_length < 1 -%}
        {{ exceptions.raise_compiler_error("page_length must be an integer of at least 1, not " ~ page_length ~ ".") }}
    {%- endif -%}
select
    timeline.event_id,
    timeline.topological_ordering,
    timeline.stream_ordering,
    visibility.outcome,
    visibility.membership,
    't' || timeline.topological_ordering || '-' || (timeline.stream_ordering - 1) as next_token
from {{ ref('room_timeline') }} as timeline
inner join {{ ref('event_visibility') }} as visibility
    on timeline.room_id = visibility.room_id and timeline.event_id = visibility.event_id
where
    timeline.room_id = {{ text_value(room_id) }}
    and visibility.room_id = {{ text_value(room_id) }}
    and visibility.user_id = {{ text_value(user_id) }}
    and not visibility.peeking
    and visibility.outcome <> 'hidden'
    {%- if position %}
    and (
        timeline.topological_ordering < {{ position.group(1) }}
        or timeline.topological_ordering = {{ position.group(1) }} and timeline.stream_ordering <= {{ position.group(2) }}
    )
    {%- endif %}
order by timeline.topological_ordering desc, timeline.stream_ordering desc
limit {{ page_length }}
{%- endmacro %}
