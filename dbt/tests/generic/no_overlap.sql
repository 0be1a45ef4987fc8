{# Within `of`, the ranges from `first` to `last` follow each other: none overlaps the next, none ends before it begins. #}
{% test no_overlap(model, of, first, last) %}
    select *
    from (
        select
            {{ of | join(', ') }}, {{ first }}, {{ last }},
            lead({{ first }}) over (partition by {{ of | join(', ') }} order by {{ first }}) as next_first
        from {{ model }}
    )
    where {{ last }} < {{ first }} or next_first <= {{ last }}
{% endtest %}
