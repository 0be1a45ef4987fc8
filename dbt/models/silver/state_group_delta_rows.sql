{{ config(meta={'affected_by': 'changed_state_groups'}) }}
select state_group, count(*) as delta_rows
from {{ rows_of_changed_groups() }}
group by state_group
