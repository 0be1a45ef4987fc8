-- One finding for each cause and each release that found further changes: a loss that continues is a new finding. `expected` and
-- `found` show one of the pieces of state that changed.
--
-- A change is a repair if each changed piece of the cause is now correct: its event is the creation event of the room, or the
-- state event that has this state group. So the repair of a loss before the first release is no loss.
with changed as (
    select
        changes.*,
        events.event_id is not null and (
            events.state_group = changes.state_group or (events.type = 'm.room.create' and events.state_key = '')
        ) as is_right
    from {{ source('state', 'state_changes') }} as changes
    left join {{ ref('events') }} as events
        on
            changes.event_after = events.event_id
            and changes.room_id = events.room_id
            and changes.type = events.type
            and changes.state_key = events.state_key
            and not events.rejected
),

changes as (
    select
        cause,
        dense_rank() over (partition by cause order by found_at) as change,
        max(room_id) as room_id,
        found_at,
        count(type) as pieces,
        coalesce(bool_and(is_right) filter (where state_group = cause), false) as is_repair,
        min(struct(
            {{ piece_of_state('type', 'state_key') }} as piece,
            event_before,
            event_after
        )) filter (where type is not null) as example
    from changed
    group by cause, found_at
),

affected as (
    select changed.cause, count(distinct changed.state_group) as state_groups, count(uses.event_id) as events
    from (select distinct cause, state_group from {{ source('state', 'state_changes') }}) as changed
    left join {{ source('synapse', 'event_to_state_groups') }} as uses on changed.state_group = uses.state_group
    group by changed.cause
)

select
    'state_group_changed' as check_name,
    if(
        changes.is_repair
        {%- for entry in var('acknowledged_rooms') %}
        or (hex(changes.room_id) = '{{ entry.room | upper }}' and changes.found_at < {{ entry.before }})
        {%- endfor %},
        'info', 'fail'
    ) as severity,
    changes.room_id,
    changes.cause || if(changes.change > 1, ', change ' || changes.change, '') as subject,
    if(changes.pieces = 0, 'its earlier state', example.piece || ': ' || coalesce(example.event_before, 'nothing')) as expected,
    if(changes.pieces = 0, 'another predecessor, or the predecessor has another state', coalesce(example.event_after, 'nothing'))
    || if(changes.pieces > 1, ', and ' || (changes.pieces - 1) || ' other changed pieces of state', '')
    || ', in ' || affected.state_groups || ' state groups of ' || affected.events || ' events' as found
from changes
inner join affected on changes.cause = affected.cause
