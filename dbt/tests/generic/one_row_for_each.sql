{# One row for each key of `other`, and no further one: no join lost, repeated or invented a row. #}
{% test one_row_for_each(model, column_name, other, other_column) %}
    select theirs.{{ other_column }} as key_of_other, mine.{{ column_name }} as key_here, mine.number_of_rows
    from (
        select {{ column_name }}, count(*) as number_of_rows
        from {{ model }}
        group by {{ column_name }}
    ) as mine
    full outer join {{ other }} as theirs on mine.{{ column_name }} = theirs.{{ other_column }}
    where mine.{{ column_name }} is null or theirs.{{ other_column }} is null or mine.number_of_rows <> 1
{% endtest %}
