{{ config(materialized='affected_keys') }}
{%- set moved_positions = source('changes', 'state_positions_changes') -%}
-- The digest of a state group stands for its state, so a group that only got another position is not changed.
with changed_groups as (
    select state_group from {{ moved_positions }}
    group by state_group, room_id, state_rows, digest
    having count(distinct _change_type) < 2
)

select event_id from {{ ref('changed_events') }}
union
select event_id from {{ source('synapse', 'event_to_state_groups') }}
where state_group in (select {{ broadcast_if_few('changed_groups', [moved_positions], 4000000) }} state_group from changed_groups)
