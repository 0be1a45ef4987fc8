-- One finding for each cause. `expected` and `found` show one of the pieces of state that changed.
with changes as (
    select
        cause,
        max(room_id) as room_id,
        count(distinct state_group) as state_groups,
        count(type) as pieces,
        min(struct(
            replace(replace(type, '%', '%25'), ' ', '%20') || ' ' || state_key as piece,
            event_before,
            event_after
        )) filter (where type is not null) as example
    from {{ source('state', 'state_changes') }}
    group by cause
),

affected as (
    select changed.cause, count(*) as events
    from (select distinct cause, state_group from {{ source('state', 'state_changes') }}) as changed
    inner join {{ source('synapse', 'event_to_state_groups') }} as uses on changed.state_group = uses.state_group
    group by changed.cause
)

select
    'state_group_changed' as check_name,
    if(
        hex(changes.room_id) in ('no room'{% for room in var('acknowledged_rooms') %}, '{{ room | upper }}'{% endfor %}),
        'info', 'fail'
    ) as severity,
    changes.room_id,
    string(changes.cause) as subject,
    if(changes.pieces = 0, 'its earlier state', example.piece || ': ' || coalesce(example.event_before, 'nothing')) as expected,
    if(changes.pieces = 0, 'another predecessor or state of it', coalesce(example.event_after, 'nothing'))
    || if(changes.pieces > 1, ', and ' || (changes.pieces - 1) || ' other changed pieces of state', '')
    || ', in ' || changes.state_groups || ' state groups of ' || coalesce(affected.events, 0) || ' events' as found
from changes
left join affected on changes.cause = affected.cause
