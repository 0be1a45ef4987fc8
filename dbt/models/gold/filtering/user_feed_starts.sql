-- If all recent events are hidden or omitted, a user's feed has no rows, but it has a start.
with feeds as (
    select user_id, max(resync_from) as resync_from
    from {{ ref('user_event_feed') }}
    group by user_id
),

rooms as (
    select user_id, max(missing_until) as resync_from
    from {{ ref('feed_memberships') }}
    group by user_id
)

select
    coalesce(feeds.user_id, rooms.user_id) as user_id,
    greatest(feeds.resync_from, rooms.resync_from) as resync_from
from feeds
full outer join rooms on feeds.user_id = rooms.user_id
