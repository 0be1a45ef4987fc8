{%- set events, unmatched = ref('events'), ref('unmatched_states') -%}
select
    'state_not_of_previous_event' as check_name,
    'fail' as severity,
    events.room_id,
    events.event_id as subject,
    if(
        unmatched.expected_rows is null,
        'a state group of the room',
        coalesce('the state after ' || previous.event_id, 'no state before it')
        || if(events.is_state and not events.rejected, ' with this event', '')
        || ', ' || unmatched.expected_rows || ' pieces of state'
    ) as expected,
    'state group ' || events.state_group || if(unmatched.expected_rows is null, ' of another room', '')
    || ', ' || unmatched.state_rows || ' pieces of state' as found
from {{ unmatched }} as unmatched
inner join (
    select *, {{ value_hash('event_id') }} as event_hash from {{ events }}
    where {{ value_hash('event_id') }} in (select event_hash from {{ unmatched }})
) as events on unmatched.event_hash = events.event_hash
left join (
    select event_id, {{ value_hash('event_id') }} as event_hash from {{ events }}
    where {{ value_hash('event_id') }} in (select previous_hash from {{ unmatched }})
) as previous on unmatched.previous_hash = previous.event_hash
