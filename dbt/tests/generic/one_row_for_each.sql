{#
    One row for each key of `other`, and no further one: no join lost, repeated or invented a row. The keys of `other` are
    unique. If the numbers of rows and both sums of hashes are equal, the keys are, too. So no table is sorted or joined.
#}
{% test one_row_for_each(model, column_name, other, other_column) %}
    {%- set sides = [('here', model, column_name), ('there', other, other_column)] %}
    select *
    from
        {%- for side, relation, key in sides %}
        (
            select
                count(*) as rows_{{ side }},
                sum(shiftright(xxhash64({{ key }}), 32)) as high_sum_{{ side }},
                sum(xxhash64({{ key }}) & 4294967295) as low_sum_{{ side }}
            from {{ relation }}
        ){{ ' cross join' if not loop.last }}
        {%- endfor %}
    where
        rows_here <> rows_there
        or high_sum_here is distinct from high_sum_there
        or low_sum_here is distinct from low_sum_there
{% endtest %}
