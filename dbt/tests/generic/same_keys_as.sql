{# The model has each key of `other` and no further one: a join neither lost nor invented a row. #}
{% test same_keys_as(model, column_name, other, other_column) %}
    select mine.{{ column_name }} as only_here, theirs.{{ other_column }} as only_there
    from {{ model }} as mine
    full outer join {{ other }} as theirs on mine.{{ column_name }} = theirs.{{ other_column }}
    where mine.{{ column_name }} is null or theirs.{{ other_column }} is null
{% endtest %}
