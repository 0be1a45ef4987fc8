{{ config(meta={'affected_by': 'changed_state_groups'}) }}
{%- set changed, pieces = ref('changed_state_groups'), source('synapse', 'state_groups_state') -%}
-- Synapse stores each piece of state of a group once. Before it stores a group again, it deletes the rows that it finds by an
-- index. Synapse reads any one of several rows (_get_state_groups_from_groups_txn).
select
    state_group,
    type,
    state_key,
    max(room_id) as room_id,
    count(*) as number_of_rows,
    min(event_id) as first_event_id,
    max(event_id) as last_event_id
from {{ pieces }}
{%- if is_partial_build(changed, source('synapse', 'state_groups')) %}
{#- Most changed groups are new, so Iceberg skips most data files. #}
where
    state_group in (select state_group from {{ changed }})
    and state_group >= {{ run_query("select coalesce(min(state_group), 0) from " ~ changed).columns[0].values()[0] }}
{%- endif %}
group by state_group, type, state_key
having count(*) > 1
