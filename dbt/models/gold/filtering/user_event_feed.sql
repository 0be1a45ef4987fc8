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

visible as (
    {{ visibility('recent', 'readers', [false]) }}
),

-- Clients get changes of their own membership whatever the room's history visibility is. So invites arrive, except invites
-- from ignored users (synapse.handlers.sync).
entries as (
    select visible.user_id, visible.event_id, visible.room_id, visible.outcome, false as is_membership_change
    from visible
    inner join feed_candidates on visible.event_id = feed_candidates.event_id
    inner join {{ ref('feed_memberships') }} as stays on visible.room_id = stays.room_id and visible.user_id = stays.user_id
    where
        visible.outcome <> 'hidden'
        -- Events that arrive late or on another fork during a stay are delivered too, whatever their place in the graph.
        and (visible.membership = 'join' or feed_candidates.stream_ordering >= stays.began)
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

-- A user's own join is both a visible event and a change of the user's membership.
unique_entries as (
    select user_id, event_id, room_id, min(outcome) as outcome, bool_or(is_membership_change) as is_membership_change
    from entries
    group by user_id, event_id, room_id
),

ranked_entries as (
    select
        unique_entries.*,
        events.stream_ordering,
        events.instance_name,
        row_number() over (partition by unique_entries.user_id order by events.stream_ordering desc) as nth
    from unique_entries
    inner join {{ ref('events') }} as events on unique_entries.event_id = events.event_id
),

-- One entry more than the length shows where a longer feed would continue.
newest_entries as (
    select
        *,
        max(case when nth = {{ length }} + 1 then stream_ordering end) over (partition by user_id) as feed_limit_until
    from ranked_entries
    where nth <= {{ length }} + 1
),

room_limits as (
    select user_id, max(missing_until) as missing_until from {{ ref('feed_memberships') }}
    group by user_id
),

entries_with_resync_point as (
    select newest_entries.*, greatest(newest_entries.feed_limit_until, room_limits.missing_until) as resync_from
    from newest_entries
    left join room_limits on newest_entries.user_id = room_limits.user_id
)

select user_id, stream_ordering, instance_name, room_id, event_id, is_membership_change, outcome, resync_from
from entries_with_resync_point
where resync_from is null or stream_ordering > resync_from
