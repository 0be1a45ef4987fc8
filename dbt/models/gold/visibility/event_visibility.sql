{{ config(materialized='view') }}
-- The questions of synapse.visibility.filter_and_transform_events_for_client, in its order.
with readings as (
    select
        event.room_id,
        reader.user_id,
        event.event_id,
        peek.peeking,
        event.withheld,
        event.soft_failed
        and not coalesce(options.sees_soft_failed, false)
        and not (coalesce(options.sees_policy_server_spammy, false) and event.policy_server_spammy) as soft_failed,
        event.never_sent,
        not event.is_state and ignored.ignored_user_id is not null as sender_ignored,
        coalesce(event.expires_at < moment.as_of, false) as expired,
        event.outlier,
        event.position = -1 as state_unknown,
        event.history_visibility,
        case when not event.sender_erased then event.boundary_visibility end as lax_visibility,
        event.sender_erased,
        event.rings,
        event.ends_a_stay,
        coalesce(event.member = reader.user_id, false) as is_own,
        event.membership as own_membership,
        case when event.member = reader.user_id then event.most_joined else reader.membership end as decisive_membership,
        reader.membership
    from {{ ref('event_circumstances') }} as event
    inner join {{ ref('visibility_intervals') }} as reader
        on
            event.room_id = reader.room_id
            and event.position >= reader.first_position
            and event.position <= reader.last_position
    cross join (select false as peeking union all select true as peeking) as peek
    cross join {{ ref('as_of') }} as moment
    left join {{ source('synapse', 'ignored_users') }} as ignored
        on reader.user_id = ignored.ignorer_user_id and event.sender = ignored.ignored_user_id
    left join {{ ref('admin_options') }} as options on reader.user_id = options.user_id
),

decided as (
    select
        room_id,
        user_id,
        event_id,
        peeking,
        sender_erased,
        rings,
        is_own,
        own_membership,
        membership,
        outlier,
        state_unknown,
        case
            when withheld is not null then withheld
            when soft_failed then 'soft_failed'
            when never_sent = 'dummy_event' then 'dummy_event'
            when sender_ignored then 'sender_ignored'
            when never_sent = 'room_aliases' then 'room_aliases'
            when expired then 'retention'
            when outlier and is_own then 'own_outlier'
            when outlier then 'outlier'
            when state_unknown then 'state_unknown'
            when lax_visibility = 'world_readable' then 'world_readable'
            when lax_visibility = 'shared' and not peeking then 'shared'
            when is_own and ends_a_stay then 'own_leave'
            when decisive_membership = 'join' then 'joined'
            when history_visibility = 'joined' then 'not_joined'
            when history_visibility = 'invited' and decisive_membership = 'invite' then 'invited'
            when history_visibility = 'invited' then 'not_invited'
            when history_visibility = 'shared' and peeking then 'peeking'
            else history_visibility
        end as rule
    from readings
),

outcomes as (
    select
        room_id,
        user_id,
        event_id,
        peeking,
        sender_erased,
        is_own,
        own_membership,
        membership,
        outlier or state_unknown as state_unknown,
        rule in ('own_outlier', 'world_readable', 'shared', 'own_leave', 'joined', 'invited') as is_visible,
        rings,
        rule
    from decided
)

select
    room_id,
    user_id,
    event_id,
    peeking,
    case
        when not is_visible or rings then 'hidden'
        when sender_erased and rule not in ('joined', 'own_outlier') then 'redacted'
        else 'full'
    end as outcome,
    case
        when is_visible and rings then 'call_invite'
        when is_visible and sender_erased and rule not in ('joined', 'own_outlier') then 'sender_erased'
        else rule
    end as rule,
    case
        when is_own then own_membership
        when state_unknown then null
        else coalesce(membership, 'leave')
    end as membership
from outcomes
