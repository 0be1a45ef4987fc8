-- Events without any row of event_edges are findings of `reference_findings`, which knows the legal cases.
{%- set missing = ref('missing_edges') %}
select
    'event_incomplete' as check_name,
    'fail' as severity,
    events.room_id,
    events.event_id as subject,
    concat_ws(
        ', ',
        if(lacks_edges, prev_events || ' rows of event_edges', null),
        if(lacks_auth, auth_events || ' rows of event_auth', null)
    ) as expected,
    concat_ws(', ', if(lacks_edges, string(prev_rows), null), if(lacks_auth, string(auth_rows), null)) as found
from (
    select *, prev_rows between 1 and prev_events - 1 as lacks_edges, auth_rows < auth_events as lacks_auth from {{ missing }}
) as missing
inner join (
    select event_id, room_id, {{ value_hash('event_id') }} as event_hash from {{ source('synapse', 'events') }}
    where {{ value_hash('event_id') }} in (select event_hash from {{ missing }})
) as events on missing.event_hash = events.event_hash
left anti join {{ ref('reference_findings') }} as known
    on events.event_id = known.subject and known.check_name = 'event_incomplete'
