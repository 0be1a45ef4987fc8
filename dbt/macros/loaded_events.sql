{#
    Events as Synapse's event loader reads them (synapse.storage.databases.main.events_worker); only those in the relation
    `keys` if there is one. `hint`: a hint that broadcast_if_few returns.
#}
{% macro loaded_events(keys=none, hint='') -%}
    select
        events.event_id,
        events.room_id,
        events.type,
        events.sender,
        events.origin_server_ts,
        events.topological_ordering,
        coalesce(events.outlier, false) as outlier,
        fields.state_key,
        fields.state_key is not null as is_state,
        coalesce(fields.soft_failed, false) as soft_failed,
        coalesce(fields.policy_server_spammy, false) as policy_server_spammy,
        fields.recheck_redaction,
        fields.replaces_state,
        fields.redacts,
        fields.membership,
        fields.history_visibility,
        fields.join_rule,
        fields.prev_content_membership,
        fields.prev_content_history_visibility,
        fields.has_prev_content_and_sender,
        case
            when coalesce(rejections.reason, '') <> '' then 'rejected'
            when fields.event_id is null or fields.unloadable is not null then 'unreadable'
        end as load_failure
    from {{ rows_with(source('synapse', 'events'), keys, hint=hint) }} as events
    left join {{ rows_with(ref('event_fields'), keys, hint=hint) }} as fields on events.event_id = fields.event_id
    left join {{ rows_with(source('synapse', 'rejections'), keys, hint=hint) }} as rejections on events.event_id = rejections.event_id
{%- endmacro %}
