-- Synapse does not load unreadable events and those with another ID (synapse.storage.databases.main.events_worker).
select
    'event_altered' as check_name,
    case when reason in ('event_id', 'not_an_event') then 'fail' else 'warn' end as severity,
    room_id,
    event_id as subject,
    'JSON that matches its event ID and its content hash' as expected,
    reason as found
from {{ ref('event_hashes') }}
where verdict = 'altered'

union all

-- Events in rooms of unknown versions are legal: Synapse omits them.
select 'event_unloadable', 'fail', room_id, event_id, 'an event that Synapse can load', unloadable
from {{ ref('events') }}
where json_bytes is not null and unloadable <> 'room_version_unknown'
