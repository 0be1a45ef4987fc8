{{ config(meta={'affected_by': 'affected_events'}) }}
{%- set affected = ref('affected_events') -%}
{%- set built = affected if is_partial_build(affected) else none %}
select
    events.event_id,
    events.room_id,
    events.type,
    events.state_key,
    events.state_key is not null as is_state,
    current_state.event_id is not null as is_current_state,
    events.sender,
    fields.membership,
    events.origin_server_ts,
    events.received_ts,
    {{ to_timestamp('events.received_ts') }} as received_at,
    events.stream_ordering,
    events.topological_ordering,
    events.depth,
    coalesce(events.instance_name, 'master') as instance_name,
    events.outlier,
    coalesce(rejections.reason, events.rejection_reason) as rejection_reason,
    coalesce(rejections.reason, events.rejection_reason) is not null as rejected,
    fields.unloadable,
    fields.soft_failed,
    fields.policy_server_spammy,
    fields.out_of_band_membership,
    own_redaction.redacts,
    redacting.event_id as redacted_by,
    fields.pruned_on_receipt,
    relations.relates_to_id as relates_to,
    relations.relation_type,
    relations.aggregation_key,
    fields.replaces_state,
    state_groups.state_group,
    events.contains_url,
    fields.json_bytes
from {{ rows_with(source('synapse', 'events'), built) }} as events
left join {{ rows_with(ref('event_fields'), built) }} as fields on events.event_id = fields.event_id
left join {{ rows_with(source('synapse', 'rejections'), built) }} as rejections on events.event_id = rejections.event_id
left join {{ rows_with(source('synapse', 'event_relations'), built) }} as relations on events.event_id = relations.event_id
left join {{ rows_with(source('synapse', 'event_to_state_groups'), built) }} as state_groups on events.event_id = state_groups.event_id
left join {{ rows_with(source('synapse', 'current_state_events'), built) }} as current_state on events.event_id = current_state.event_id
left join {{ rows_with(ref('redactions'), built) }} as own_redaction
    on events.event_id = own_redaction.event_id and not own_redaction.by_ban
left join {{ rows_with(ref('redactions'), built, 'redacts', 'event_id') }} as redacting on events.event_id = redacting.redacts and redacting.is_first
