{{ config(meta={'affected_by': 'affected_event_states'}) }}
{%- set affected, events = ref('affected_event_states'), ref('events') -%}
{%- set is_affected = "where event_hash in (select event_hash from " ~ affected ~ ")" if is_partial_build(affected, events) else '' -%}
-- Synapse stores the membership of the event's content (_store_room_members_txn). A redaction does not remove it from the JSON.
with sent as (
    select {{ value_hash('event_id') }} as event_hash, membership from {{ ref('event_fields') }}
    where membership is not null
),

stored as (
    select {{ value_hash('event_id') }} as event_hash, membership from {{ source('synapse', 'room_memberships') }}
)

select sent.event_hash, sent.membership as sent_membership, stored.membership as stored_membership
from (select * from sent {{ is_affected }}) as sent
inner join (select * from stored {{ is_affected }}) as stored on sent.event_hash = stored.event_hash
where sent.membership <> stored.membership
