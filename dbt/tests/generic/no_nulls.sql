{# None of `columns` is NULL in any row; one query for all of them. #}
{% test no_nulls(model, columns) %}
    select *
    from {{ model }}
    where {% for column in columns %}{{ column }} is null{{ " or " if not loop.last }}{% endfor %}
{% endtest %}
