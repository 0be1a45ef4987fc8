-- Memberships that differ from the JSON of their events. `reference_findings` compares the other copies.
{%- set unmatched, pieces = ref('unmatched_memberships'), source('synapse', 'current_state_events') %}
with faults as (
    select
        events.room_id,
        events.event_id,
        unmatched.sent_membership as expected,
        unmatched.stored_membership || ' in room_memberships' as found
    from {{ unmatched }} as unmatched
    inner join (
        select event_id, room_id, {{ value_hash('event_id') }} as event_hash from {{ source('synapse', 'events') }}
        where {{ value_hash('event_id') }} in (select event_hash from {{ unmatched }})
    ) as events on unmatched.event_hash = events.event_hash
    union all
    -- Synapse copies the membership from room_memberships. The membership is NULL if Synapse stored the event as rejected during
    -- a fast join, without a row in room_memberships, and accepted the event later.
    select pieces.room_id, pieces.event_id, fields.membership, 'NULL in current_state_events'
    from (select room_id, event_id from {{ pieces }} where type = 'm.room.member' and membership is null) as pieces
    inner join {{ ref('event_fields') }} as fields on pieces.event_id = fields.event_id
    where fields.membership is not null
)

select
    'copied_value_differs' as check_name,
    'fail' as severity,
    room_id,
    event_id as subject,
    'membership ' || max(expected) as expected,
    array_join(array_sort(collect_set(found)), ', ') as found
from faults
left anti join {{ ref('reference_findings') }} as known
    on faults.event_id = known.subject and known.check_name = 'copied_value_differs'
group by room_id, event_id
