-- One finding for each cause and each release that found further changes: a loss that continues is a new finding. `expected` and
-- `found` show one of the pieces of state that changed.
with changes as (
    select
        cause,
        dense_rank() over (partition by cause order by found_at) as change,
        max(room_id) as room_id,
        count(type) as pieces,
        min(struct(
            replace(replace(type, '%', '%25'), ' ', '%20') || ' ' || state_key as piece,
            event_before,
            event_after
        )) filter (where type is not null) as example
    from {{ source('state', 'state_changes') }}
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
        hex(changes.room_id) in ('no room'{% for room in var('acknowledged_rooms') %}, '{{ room | upper }}'{% endfor %}),
        'info', 'fail'
    ) as severity,
    changes.room_id,
    changes.cause || if(changes.change > 1, ', change ' || changes.change, '') as subject,
    if(changes.pieces = 0, 'its earlier state', example.piece || ': ' || coalesce(example.event_before, 'nothing')) as expected,
    if(changes.pieces = 0, 'another predecessor or state of it', coalesce(example.event_after, 'nothing'))
    || if(changes.pieces > 1, ', and ' || (changes.pieces - 1) || ' other changed pieces of state', '')
    || ', in ' || affected.state_groups || ' state groups of ' || affected.events || ' events' as found
from changes
inner join affected on changes.cause = affected.cause
