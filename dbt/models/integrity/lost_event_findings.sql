{%- if 'json_without_event' not in (distinct_values(ref('reference_findings'), 'check_name') or ['json_without_event']) -%}
-- No event was lost.
select check_name, severity, room_id, subject, expected, found from {{ ref('reference_findings') }} where false
{%- else -%}
with json_alone as (
    select subject as event_id, room_id
    from {{ ref('reference_findings') }}
    where check_name = 'json_without_event'
),

-- An event was no outlier if it has a state group, if it is a forward extremity, or if an event that is no outlier refers to it
-- and it is no backward extremity. The rows of the other tables prove nothing, but contain the event's stream ID.
traces as (
    select event_id, cast(null as bigint) as known_id, true as is_proof from {{ source('synapse', 'event_to_state_groups') }}
    union all
    select event_id, null, true from {{ source('synapse', 'event_forward_extremities') }}
    union all
    select edges.prev_event_id, null, true
    from {{ source('synapse', 'event_edges') }} as edges
    left semi join json_alone on edges.prev_event_id = json_alone.event_id
    inner join {{ source('synapse', 'events') }} as events on edges.event_id = events.event_id
    left anti join {{ source('synapse', 'event_backward_extremities') }} as extremities
        on edges.prev_event_id = extremities.event_id
    where not events.outlier
    {%- for table in ['room_memberships', 'local_current_membership', 'current_state_events'] %}
    union all
    select event_id, event_stream_ordering, false from {{ source('synapse', table) }}
    {%- endfor %}
),

lost_events as (
    select json_alone.event_id, json_alone.room_id, max(traces.known_id) as known_id
    from json_alone
    inner join traces on json_alone.event_id = traces.event_id
    group by json_alone.event_id, json_alone.room_id
    having bool_or(traces.is_proof)
),

-- If rows of events are missing, rows of event_edges may be missing too. The JSON also names the parents.
lost_json as (
    select /*+ broadcast(lost_events) */
        lost_events.event_id,
        lost_events.room_id,
        get_json_object(fields.json, '$.sender') as sender,
        get_json_object(fields.json, '$.type') as type,
        get_json_object(fields.json, '$.prev_events') as parents
    from {{ source('synapse', 'event_json') }} as fields
    inner join lost_events on fields.event_id = lost_events.event_id
),

lost_edges as (
    select /*+ broadcast(lost_events) */ lost_events.room_id, edges.event_id as child, edges.prev_event_id as parent
    from {{ source('synapse', 'event_edges') }} as edges
    inner join lost_events on edges.prev_event_id = lost_events.event_id
    union
    select room_id, event_id, explode(from_json(parents, 'array<string>')) from lost_json
),

-- Lost events are few, so the events are not shuffled.
neighbours as (
    select /*+ broadcast(ids) */ events.*
    from {{ source('synapse', 'events') }} as events
    left semi join (select explode(array(child, parent)) as event_id from lost_edges) as ids on events.event_id = ids.event_id
),

-- An event of this server that was purged and fetched again has a negative ID, so a lost event may have had one too.
backfilled as (
    select distinct room_id from {{ source('synapse', 'events') }} where stream_ordering < 0
),

-- The first ID of a child is above the ID of its parent only if this server created the child
-- (streams/gaps/lost_event_ranges.py). For a join, a knock and a rejected invite, another server chooses the parents, which may
-- arrive later. Former outliers were fetched from other servers too.
lost_graphs as (
    select
        edges.room_id,
        collect_list(
            struct(edges.child, edges.parent, later.stream_ordering as child_id, earlier.stream_ordering as parent_id)
        ) as edges
    from lost_edges as edges
    left join neighbours as later on edges.child = later.event_id
    left join neighbours as earlier on edges.parent = earlier.event_id
    left join lost_json on edges.child = lost_json.event_id
    left join backfilled on edges.room_id = backfilled.room_id
    left anti join {{ source('synapse', 'ex_outlier_stream') }} as former_outliers on edges.child = former_outliers.event_id
    where
        {{ server_name('coalesce(later.sender, lost_json.sender)') }} = '{{ var('server_name') }}'
        and coalesce(later.type, lost_json.type, '') <> 'm.room.member'
        and if(later.event_id is null, backfilled.room_id is null, later.stream_ordering > 0 and not later.outlier)
    group by edges.room_id
),

lost_ranges as (
    select rooms.room_id, inline(lost_event_ranges(rooms.lost, lost_graphs.edges)) as (event_id, first_id, last_id)
    from (
        select room_id, collect_list(struct(event_id, known_id)) as lost from lost_events group by room_id
    ) as rooms
    left join lost_graphs on rooms.room_id = lost_graphs.room_id
)

select
    'event_lost' as check_name,
    if(
        hex(room_id) in ('no room'{% for entry in var('acknowledged_rooms') %}, '{{ entry.room | upper }}'{% endfor %}),
        'info', 'fail'
    ) as severity,
    room_id,
    event_id as subject,
    'a row of events with a stream ID '
    || case
        when first_id is null and last_id is null then 'that nothing bounds'
        when last_id is null then 'from ' || first_id || ' on'
        when first_id is null then 'up to ' || last_id
        else 'from ' || first_id || ' to ' || last_id
    end as expected,
    'its JSON alone' as found
from lost_ranges

union all

select 'json_without_event', 'warn', json_alone.room_id, json_alone.event_id, 'a row of events', 'none'
from json_alone
left anti join lost_events on json_alone.event_id = lost_events.event_id
{%- endif %}
