{#- Tables whose rows Synapse deletes with a room (`purge_events.py` in Synapse 1.163), and that are copied, except the
    single row of `rooms`: dbt cannot test a model that reads a source and a model of the same name. -#}
{%- set by_room = [
    'current_state_events', 'event_auth', 'event_backward_extremities', 'event_forward_extremities', 'event_json',
    'events', 'local_current_membership', 'partial_state_events', 'partial_state_rooms', 'receipts_linearized',
    'room_account_data', 'room_aliases', 'room_depth', 'room_memberships', 'room_stats_current', 'room_stats_state',
    'sliding_sync_joined_rooms', 'sliding_sync_membership_snapshots', 'state_events', 'state_groups',
    'state_groups_state', 'sticky_events',
] -%}
{%- set by_event = ['event_edges', 'event_relations', 'event_to_state_groups', 'redactions', 'rejections'] -%}
with abandoned as (
    select room_id from {{ ref('rooms') }} where joined_local_members = 0
),

abandoned_events as (
    select event_id, room_id from {{ source('synapse', 'events') }}
    where room_id in (select room_id from abandoned)
)

{%- for table in by_room %}
{{ 'union all' if not loop.first }}
select room_id, '{{ table }}' as table_name, count(*) as stored_rows
from {{ source('synapse', table) }}
where room_id in (select room_id from abandoned)
group by room_id
{%- endfor %}
{%- for table in by_event %}
union all
select abandoned_events.room_id, '{{ table }}', count(*)
from {{ source('synapse', table) }} as stored
inner join abandoned_events on stored.event_id = abandoned_events.event_id
group by abandoned_events.room_id
{%- endfor %}
union all
select state_groups.room_id, 'state_group_edges', count(*)
from {{ source('synapse', 'state_group_edges') }} as edges
inner join {{ source('synapse', 'state_groups') }} as state_groups on edges.state_group = state_groups.id
where state_groups.room_id in (select room_id from abandoned)
group by state_groups.room_id
