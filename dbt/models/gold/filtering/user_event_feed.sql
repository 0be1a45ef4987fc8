{%- set length = var('feed_length') | int -%}
with feed_candidates as (
    {{ feed_candidates() }}
),

recent as (
    select visibility_inputs.*
    from {{ ref('event_visibility_inputs') }} as visibility_inputs
    inner join feed_candidates on visibility_inputs.event_id = feed_candidates.event_id
    where feed_candidates.nth <= {{ length }}
),

readers as (
    select intervals.*
    from {{ ref('visibility_intervals') }} as intervals
    inner join {{ ref('feed_memberships') }} as stays on intervals.room_id = stays.room_id and intervals.user_id = stays.user_id
    where stays.ended is null or intervals.membership = 'join'
),

in_rooms as (
    {{ visibility('recent', 'readers', [false]) }}
),

-- Clients get changes of their own membership whatever the room's history visibility, so that invites arrive, except
-- invites from ignored users (synapse.handlers.sync).
entries as (
    select in_rooms.user_id, in_rooms.event_id, in_rooms.room_id, in_rooms.outcome, false as is_membership_change
    from in_rooms
    inner join feed_candidates on in_rooms.event_id = feed_candidates.event_id
    inner join {{ ref('feed_memberships') }} as stays on in_rooms.room_id = stays.room_id and in_rooms.user_id = stays.user_id
    where
        in_rooms.outcome <> 'hidden'
        -- Events that arrive late or on another fork during a stay are delivered too, whatever their place in the graph.
        and (in_rooms.membership = 'join' or feed_candidates.stream_ordering >= stays.began)
        and (stays.ended is null or feed_candidates.stream_ordering <= stays.ended)
    union all
    select visibility_inputs.member, visibility_inputs.event_id, visibility_inputs.room_id, 'full', true
    from {{ ref('event_visibility_inputs') }} as visibility_inputs
    inner join {{ ref('events') }} as events on visibility_inputs.event_id = events.event_id
    left join {{ source('synapse', 'ignored_users') }} as ignored
        on
            visibility_inputs.member = ignored.ignorer_user_id
            and visibility_inputs.sender = ignored.ignored_user_id
            and visibility_inputs.membership = 'invite'
    where
        {{ is_local('visibility_inputs.member') }}
        and ignored.ignorer_user_id is null
        and visibility_inputs.withheld is null
        and not visibility_inputs.soft_failed
        and events.stream_ordering > 0
),

-- A user's own join has both properties.
merged as (
    select user_id, event_id, room_id, min(outcome) as outcome, bool_or(is_membership_change) as is_membership_change
    from entries
    group by user_id, event_id, room_id
),

placed as (
    select
        merged.*,
        events.stream_ordering,
        events.instance_name,
        row_number() over (partition by merged.user_id order by events.stream_ordering desc) as nth
    from merged
    inner join {{ ref('events') }} as events on merged.event_id = events.event_id
),

user_ends as (
    select user_id, max(stream_ordering) as stream_ordering
    from (
        select user_id, stream_ordering from placed
        where nth = {{ length }} + 1
        union all
        select user_id, missing_until from {{ ref('feed_memberships') }}
    )
    group by user_id
)

select
    placed.user_id,
    placed.stream_ordering,
    placed.instance_name,
    placed.room_id,
    placed.event_id,
    placed.is_membership_change,
    placed.outcome,
    user_ends.stream_ordering as resync_from
from placed
left join user_ends on placed.user_id = user_ends.user_id
where user_ends.stream_ordering is null or placed.stream_ordering > user_ends.stream_ordering
