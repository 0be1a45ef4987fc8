{{ config(materialized='view') }}
{#- Caches that Synapse 1.163 invalidates for each of its three special names, by room or as a whole. Caches of changed
    members are omitted for cs_cache_fake, because the lake has only a hash of the keys. -#}
{%- set whole_caches = [
    '_get_forward_extremeties_for_room', '_get_joined_profile_from_event_id', '_get_membership_from_event_id',
    '_get_rooms_for_local_user_where_membership_is_inner', '_get_state_group_for_event', 'did_forget',
    'does_pair_of_users_share_a_room', 'get_account_data_for_room', 'get_account_data_for_room_and_type',
    'get_applicable_edit', 'get_event_ordering', 'get_forgotten_rooms_for_user', 'get_invited_rooms_for_local_user',
    'get_references_for_event', 'get_rooms_for_user', 'get_sliding_sync_rooms_for_user_from_membership_snapshots',
    'get_tags_for_room', 'get_thread_id', 'get_thread_id_for_receipts', 'get_thread_participated',
    'get_thread_summary', 'get_user_in_room_with_profile', 'is_host_invited', 'is_host_joined',
    'is_partial_state_event',
] -%}
{%- set of_state = [
    '_get_current_state_event_id', 'get_partial_current_state_ids', 'get_room_encryption', 'get_room_summary',
    'get_room_type', 'get_sliding_sync_rooms_for_user_from_membership_snapshots',
] -%}
{%- set of_history = [
    '_get_joined_profile_from_event_id', '_get_max_event_pos', '_get_membership_from_event_id',
    '_get_rooms_for_local_user_where_membership_is_inner', '_get_state_group_for_event', 'did_forget',
    'get_applicable_edit', 'get_event_ordering', 'get_forgotten_rooms_for_user', 'get_invited_rooms_for_local_user',
    'get_latest_event_ids_in_room', 'get_metadata_for_event', 'get_references_for_event', 'get_relations_for_event',
    'get_room_encryption', 'get_room_type', 'get_rooms_for_user',
    'get_sliding_sync_rooms_for_user_from_membership_snapshots', 'get_thread_id', 'get_thread_id_for_receipts',
    'get_thread_participated', 'get_thread_summary', 'get_threads',
    'get_unread_event_push_actions_by_room_for_user', 'have_seen_event', 'is_partial_state_event',
] -%}
{%- set of_rooms = of_state + [
    '_get_forward_extremeties_for_room', '_get_linearized_receipts_for_room', '_get_partial_state_servers_at_join',
    'does_pair_of_users_share_a_room', 'get_account_data_for_room', 'get_account_data_for_room_and_type',
    'get_aliases_for_room', 'get_current_hosts_in_room', 'get_current_hosts_in_room_ordered',
    'get_local_users_in_room', 'get_member_counts', 'get_number_joined_users_in_room',
    'get_retention_policy_for_room', 'get_room_version_id', 'get_tags_for_room', 'get_user_in_room_with_profile',
    'get_users_in_room', 'get_users_in_room_with_profiles', 'is_host_invited', 'is_host_joined',
    'is_partial_state_room', 'is_room_blocked',
] -%}
{%- set special_caches = {
    'cs_cache_fake': of_state, 'ph_cache_fake': of_history, 'dr_cache_fake': (of_history + of_rooms) | unique | list,
} -%}
select
    dialect,
    instance,
    date_trunc('hour', received_at) as hour,
    coalesce(special_caches.cache, name) as cache,
    count(*) as invalidations,
    count(distinct case when not (has_no_key or coalesce(is_whole, false)) then row_key end) as entries,
    count(case when has_no_key or coalesce(is_whole, false) then 1 end) as whole
from (
    select
        dialect,
        instance,
        received_at,
        regexp_extract(row, '^."([^"]+)"', 1) as name,
        -- A key that was read from the database may be withheld, so it identifies no entry.
        nullif(regexp_extract(row, '^."[^"]+","([0-9a-f]+)",', 1), '') as row_key,
        row like '["%",null,%' as has_no_key
    from {{ source('replication', 'replication_commands') }}
    where command = 'RDATA' and stream = 'caches' and row <> 'null'
) as invalidations_received
left join (
    select * from (values
        {%- for special, caches in special_caches.items() %}{% set outer = loop %}
        {%- for cache in caches %}
        ('{{ special }}', '{{ cache }}', {{ (cache in whole_caches) | lower }}){{ ',' if not (loop.last and outer.last) }}
        {%- endfor %}
        {%- endfor %}
    ) as expanded (special, cache, is_whole)
) as special_caches on invalidations_received.name = special_caches.special
group by dialect, instance, date_trunc('hour', received_at), coalesce(special_caches.cache, name)
