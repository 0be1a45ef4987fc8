{{ config(materialized='view') }}
-- What Synapse 1.163 forgets for each of its three special names; some caches by room, some whole. What a change of
-- members adds to cs_cache_fake cannot be told: of keys, only a hash is kept.
select
    dialect,
    instance,
    date_trunc('hour', received_at) as hour,
    coalesce(meant.cache, name) as cache,
    count(*) as invalidations,
    count(distinct case when not (has_no_key or coalesce(is_whole, false)) then row_key end) as entries,
    count(case when has_no_key or coalesce(is_whole, false) then 1 end) as whole
from (
    select
        dialect,
        instance,
        received_at,
        regexp_extract(row, '^."([^"]+)"', 1) as name,
        regexp_extract(row, '^."[^"]+","([0-9a-f]+)",', 1) as row_key,
        row like '["%",null,%' as has_no_key
    from {{ source('replication', 'replication_commands') }}
    where command = 'RDATA' and stream = 'caches' and row <> 'null'
) as told
left join (
    select * from (values
        ('cs_cache_fake', '_get_current_state_event_id', false),
        ('cs_cache_fake', 'get_partial_current_state_ids', false), ('cs_cache_fake', 'get_room_encryption', false),
        ('cs_cache_fake', 'get_room_summary', false), ('cs_cache_fake', 'get_room_type', false),
        ('cs_cache_fake', 'get_sliding_sync_rooms_for_user_from_membership_snapshots', true),
        ('ph_cache_fake', '_get_joined_profile_from_event_id', true), ('ph_cache_fake', '_get_max_event_pos', false),
        ('ph_cache_fake', '_get_membership_from_event_id', true),
        ('ph_cache_fake', '_get_rooms_for_local_user_where_membership_is_inner', true),
        ('ph_cache_fake', '_get_state_group_for_event', true), ('ph_cache_fake', 'did_forget', true),
        ('ph_cache_fake', 'get_applicable_edit', true), ('ph_cache_fake', 'get_event_ordering', true),
        ('ph_cache_fake', 'get_forgotten_rooms_for_user', true),
        ('ph_cache_fake', 'get_invited_rooms_for_local_user', true),
        ('ph_cache_fake', 'get_latest_event_ids_in_room', false), ('ph_cache_fake', 'get_metadata_for_event', false),
        ('ph_cache_fake', 'get_references_for_event', true), ('ph_cache_fake', 'get_relations_for_event', false),
        ('ph_cache_fake', 'get_room_encryption', false), ('ph_cache_fake', 'get_room_type', false),
        ('ph_cache_fake', 'get_rooms_for_user', true),
        ('ph_cache_fake', 'get_sliding_sync_rooms_for_user_from_membership_snapshots', true),
        ('ph_cache_fake', 'get_thread_id', true), ('ph_cache_fake', 'get_thread_id_for_receipts', true),
        ('ph_cache_fake', 'get_thread_participated', true), ('ph_cache_fake', 'get_thread_summary', true),
        ('ph_cache_fake', 'get_threads', false),
        ('ph_cache_fake', 'get_unread_event_push_actions_by_room_for_user', false),
        ('ph_cache_fake', 'have_seen_event', false), ('ph_cache_fake', 'is_partial_state_event', true),
        ('dr_cache_fake', '_get_current_state_event_id', false),
        ('dr_cache_fake', '_get_forward_extremeties_for_room', true),
        ('dr_cache_fake', '_get_joined_profile_from_event_id', true),
        ('dr_cache_fake', '_get_linearized_receipts_for_room', false),
        ('dr_cache_fake', '_get_max_event_pos', false), ('dr_cache_fake', '_get_membership_from_event_id', true),
        ('dr_cache_fake', '_get_partial_state_servers_at_join', false),
        ('dr_cache_fake', '_get_rooms_for_local_user_where_membership_is_inner', true),
        ('dr_cache_fake', '_get_state_group_for_event', true), ('dr_cache_fake', 'did_forget', true),
        ('dr_cache_fake', 'does_pair_of_users_share_a_room', true),
        ('dr_cache_fake', 'get_account_data_for_room', true),
        ('dr_cache_fake', 'get_account_data_for_room_and_type', true),
        ('dr_cache_fake', 'get_aliases_for_room', false), ('dr_cache_fake', 'get_applicable_edit', true),
        ('dr_cache_fake', 'get_current_hosts_in_room', false),
        ('dr_cache_fake', 'get_current_hosts_in_room_ordered', false), ('dr_cache_fake', 'get_event_ordering', true),
        ('dr_cache_fake', 'get_forgotten_rooms_for_user', true),
        ('dr_cache_fake', 'get_invited_rooms_for_local_user', true),
        ('dr_cache_fake', 'get_latest_event_ids_in_room', false),
        ('dr_cache_fake', 'get_local_users_in_room', false), ('dr_cache_fake', 'get_member_counts', false),
        ('dr_cache_fake', 'get_metadata_for_event', false),
        ('dr_cache_fake', 'get_number_joined_users_in_room', false),
        ('dr_cache_fake', 'get_partial_current_state_ids', false),
        ('dr_cache_fake', 'get_references_for_event', true), ('dr_cache_fake', 'get_relations_for_event', false),
        ('dr_cache_fake', 'get_retention_policy_for_room', false), ('dr_cache_fake', 'get_room_encryption', false),
        ('dr_cache_fake', 'get_room_summary', false), ('dr_cache_fake', 'get_room_type', false),
        ('dr_cache_fake', 'get_room_version_id', false), ('dr_cache_fake', 'get_rooms_for_user', true),
        ('dr_cache_fake', 'get_sliding_sync_rooms_for_user_from_membership_snapshots', true),
        ('dr_cache_fake', 'get_tags_for_room', true), ('dr_cache_fake', 'get_thread_id', true),
        ('dr_cache_fake', 'get_thread_id_for_receipts', true), ('dr_cache_fake', 'get_thread_participated', true),
        ('dr_cache_fake', 'get_thread_summary', true), ('dr_cache_fake', 'get_threads', false),
        ('dr_cache_fake', 'get_unread_event_push_actions_by_room_for_user', false),
        ('dr_cache_fake', 'get_user_in_room_with_profile', true), ('dr_cache_fake', 'get_users_in_room', false),
        ('dr_cache_fake', 'get_users_in_room_with_profiles', false), ('dr_cache_fake', 'have_seen_event', false),
        ('dr_cache_fake', 'is_host_invited', true), ('dr_cache_fake', 'is_host_joined', true),
        ('dr_cache_fake', 'is_partial_state_event', true), ('dr_cache_fake', 'is_partial_state_room', false),
        ('dr_cache_fake', 'is_room_blocked', false)
    ) as expanded (special, cache, is_whole)
) as meant on told.name = meant.special
group by dialect, instance, date_trunc('hour', received_at), coalesce(meant.cache, name)
