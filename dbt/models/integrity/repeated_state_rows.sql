{{ config(meta={'affected_by': 'changed_state_groups'}) }}
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
from {{ rows_of_changed_groups() }}
group by state_group, type, state_key
having count(*) > 1
