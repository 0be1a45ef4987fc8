{{ config(materialized='affected_keys') }}
select distinct state_group from {{ source('changes', 'state_groups_state_changes') }}
