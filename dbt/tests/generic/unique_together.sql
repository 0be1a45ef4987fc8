{# One row for each combination of `columns`. #}
{% test unique_together(model, columns) %}
    select {{ columns | join(', ') }}, count(*) as number_of_rows
    from {{ model }}
    group by {{ columns | join(', ') }}
    having count(*) > 1
{% endtest %}
