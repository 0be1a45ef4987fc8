{{ config(meta={'affected_by': 'affected_event_states'}) }}
{%- set affected, events = ref('affected_event_states'), ref('events') -%}
{%- set is_affected = "where event_hash in (select event_hash from " ~ affected ~ ")" if is_partial_build(affected, events) else '' -%}
-- Synapse stores all edges of an event at once (_handle_mult_prev_events, _persist_event_auth_chain_txn), and deletes them with
-- the event. It stores no row of event_edges for a rejected event.
with named as (
    select {{ value_hash('event_id') }} as event_hash, prev_events, coalesce(auth_events, 0) as auth_events
    from {{ ref('event_fields') }}
    where prev_events > 1 or auth_events > 0
),

edges as (
    select {{ value_hash('event_id') }} as event_hash, false as is_auth from {{ source('synapse', 'event_edges') }}
    union all
    select {{ value_hash('event_id') }}, true from {{ source('synapse', 'event_auth') }}
),

stored as (
    select event_hash, count_if(not is_auth) as prev_rows, count_if(is_auth) as auth_rows
    from (select * from edges {{ is_affected }})
    group by event_hash
)

select
    named.event_hash,
    named.prev_events,
    coalesce(stored.prev_rows, 0) as prev_rows,
    named.auth_events,
    coalesce(stored.auth_rows, 0) as auth_rows
from (select * from named {{ is_affected }}) as named
left join stored on named.event_hash = stored.event_hash
where stored.prev_rows between 1 and named.prev_events - 1 or coalesce(stored.auth_rows, 0) < named.auth_events
