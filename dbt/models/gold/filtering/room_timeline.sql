{{ config(meta={'affected_by': 'affected_timeline_events'}) }}
{%- set affected = ref('affected_timeline_events') -%}
{%- set built = affected if is_partial_build(affected) else none -%}
with edges as (
    select
        edges.event_id,
        array_sort(collect_list(edges.prev_event_id)) as prev_event_ids,
        bool_or(missing.event_id is not null) as history_ends_here
    from {{ rows_with(source('synapse', 'event_edges'), built) }} as edges
    left join {{ source('synapse', 'event_backward_extremities') }} as missing
        on edges.prev_event_id = missing.event_id
    group by edges.event_id
)

select
    events.room_id,
    events.event_id,
    events.topological_ordering,
    events.stream_ordering,
    events.depth,
    events.type,
    events.state_key,
    events.sender,
    events.received_at,
    events.redacted_by,
    coalesce(edges.prev_event_ids, array()) as prev_event_ids,
    newest.event_id is not null as is_forward_extremity,
    coalesce(edges.history_ends_here, false) as history_ends_here
from {{ rows_with(ref('events'), built) }} as events
left join edges on events.event_id = edges.event_id
left join {{ source('synapse', 'event_forward_extremities') }} as newest
    on events.event_id = newest.event_id and events.room_id = newest.room_id
where not events.outlier and not events.rejected
