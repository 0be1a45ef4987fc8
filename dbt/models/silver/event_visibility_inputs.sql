{{ config(meta={'affected_by': 'affected_visibility_inputs'}, clustered_by='room_id') }}
{%- set affected, lookups = ref('affected_visibility_inputs'), ref('visibility_lookup_events') -%}
{%- set is_partial = is_partial_build(affected) -%}
{%- set built = affected if is_partial else none -%}
{%- set groups = rows_with(source('synapse', 'event_to_state_groups'), affected) if is_partial else none -%}
{%- set default = 'null' if var('retention_max_lifetime') is none else var('retention_max_lifetime') -%}
{%- set lifetime = 'coalesce(lifetimes.max_lifetime, cast(' ~ default ~ ' as bigint))' -%}
{%- set most = 9223372036854775807 -%}
with loaded as (
    {{ 'select * from ' ~ lookups if is_partial else loaded_events() }}
),

-- Synapse checks a redaction again whenever it loads it.
valid_redactions as (
    select redaction.event_id
    from loaded as redaction
    inner join loaded as target on redaction.redacts = target.event_id
    where
        redaction.type = 'm.room.redaction'
        and target.load_failure is null
        and target.type <> 'm.room.create'
        and target.room_id = redaction.room_id
        and not coalesce(
            redaction.recheck_redaction and {{ server_name('redaction.sender') }} <> {{ server_name('target.sender') }}, false
        )
),

loadable as (
    select
        event.*,
        case
            when event.load_failure is not null then event.load_failure
            when event.type = 'm.room.redaction' and valid_redactions.event_id is null then 'redaction_withheld'
        end as withheld
    from loaded as event
    left join valid_redactions on event.event_id = valid_redactions.event_id
),

-- The replaced event is looked up, unless it is missing or the event contains its content and sender. A redacted event
-- contains neither. The earliest event of a piece of state replaces nothing.
replaced as (
    select
        event_id,
        case when uses_prev_content then prev_content_history_visibility else previous_visibility end as history_visibility,
        case when uses_prev_content then prev_content_membership else previous_membership end as membership,
        is_earliest
    from (
        select
            event.event_id,
            event.topological_ordering = min(event.topological_ordering)
                over (partition by event.room_id, event.type, event.state_key) as is_earliest,
            event.prev_content_history_visibility,
            event.prev_content_membership,
            previous.history_visibility as previous_visibility,
            previous.membership as previous_membership,
            redactions.event_id is null and (event.has_prev_content_and_sender or previous.event_id is null) as uses_prev_content
        from loadable as event
        left join loadable as previous
            -- If `replaces_state` is NULL, this text takes its place, because Spark would join all NULLs in one partition. No
            -- event has such an ID.
            on coalesce(event.replaces_state, concat('nothing: ', event.event_id)) = previous.event_id
                and previous.withheld is null
        left join {{ ref('redactions') }} as redactions
            on event.event_id = redactions.redacts and redactions.is_first
        where event.is_state
    )
),

-- State that affects visibility, without withheld state events.
settings as (
    select
        intervals.room_id,
        intervals.type,
        intervals.first_position,
        intervals.last_position,
        loadable.history_visibility,
        loadable.join_rule
    from {{ source('state', 'state_intervals') }} as intervals
    inner join loadable on intervals.event_id = loadable.event_id and loadable.withheld is null
    where intervals.type in ('m.room.history_visibility', 'm.room.join_rules') and intervals.state_key = ''
),

-- Synapse records the replaced event once, when the event first gets a place in the room. For a former outlier, and for an
-- event with partial state, the record may be missing.
incomplete_records as (
    select event_id from {{ source('synapse', 'ex_outlier_stream') }}
    union
    select event_id from {{ source('synapse', 'partial_state_events') }}
    union
    select event_id from {{ source('synapse', 'un_partial_stated_event_stream') }}
),

positions as (
    select state_groups.event_id, positions.room_id, positions.position, cycles.state_group is null as state_is_known
    from {{ rows_with(source('synapse', 'event_to_state_groups'), built) }} as state_groups
    left join {{ rows_with(source('state', 'state_positions'), groups, 'state_group') }} as positions
        on state_groups.state_group = positions.state_group
    left join {{ source('state', 'state_faults') }} as cycles
        on state_groups.state_group = cycles.state_group and cycles.fault = 'cycle'
),

lifetimes as (
    select retention.room_id, max(retention.max_lifetime) as max_lifetime
    from {{ source('synapse', 'room_retention') }} as retention
    inner join {{ source('synapse', 'current_state_events') }} as state
        on retention.event_id = state.event_id and retention.room_id = state.room_id
    group by retention.room_id
),

visibility_inputs as (
    select
        event.event_id,
        event.room_id,
        coalesce(positions.position, -1) as position,
        coalesce(positions.state_is_known, false) as state_is_known,
        event.type,
        event.state_key,
        event.replaces_state,
        not event.is_state
        or event.replaces_state is not null
        or replaced.is_earliest
        or not event.outlier and incomplete_records.event_id is null as replaced_is_known,
        event.sender,
        event.withheld,
        event.soft_failed,
        event.policy_server_spammy,
        event.is_state,
        event.outlier,
        {{ understood_visibility('visibility.history_visibility') }} as history_visibility,
        {{ understood_visibility('replaced.history_visibility') }} as replaced_visibility,
        erased.user_id is not null as sender_erased,
        event.type = 'm.call.invite'
        and not event.is_state
        and coalesce(join_rules.join_rule, '') = 'public'
        and {{ has_rule('hidden_call_invites') }} as is_call_invite,
        {% if var('retention_enabled') -%}
        case when not event.is_state then
            -- Synapse adds Python's integers, which have no limit. The sum can be below bigint only if both numbers are negative.
            coalesce(
                try_add(event.origin_server_ts, {{ lifetime }}),
                case when {{ lifetime }} >= 0 then {{ most }} when {{ lifetime }} < 0 then -{{ most }} end
            )
        end
        {%- else -%}
        cast(null as bigint)
        {%- endif %} as expires_at,
        case when event.type = 'm.room.member' then event.state_key end as member,
        event.membership,
        {{ understood_membership('event.membership') }} as membership_set,
        {{ understood_membership('replaced.membership') }} as membership_replaced
    from loadable as event
    left join replaced on event.event_id = replaced.event_id
    left join incomplete_records on event.event_id = incomplete_records.event_id
    left join positions on event.event_id = positions.event_id and event.room_id = coalesce(positions.room_id, event.room_id)
    left join settings as visibility
        on
            event.room_id = visibility.room_id
            and visibility.type = 'm.room.history_visibility'
            and positions.position between visibility.first_position and visibility.last_position
    left join settings as join_rules
        on
            event.room_id = join_rules.room_id
            and join_rules.type = 'm.room.join_rules'
            and positions.position between join_rules.first_position and join_rules.last_position
            and event.type = 'm.call.invite'
    left join lifetimes on event.room_id = lifetimes.room_id
    left join {{ source('synapse', 'erased_users') }} as erased on event.sender = erased.user_id
)

select
    event_id,
    room_id,
    case when outlier then cast(-1 as bigint) else position end as position,
    state_is_known and not outlier as state_is_known,
    type,
    state_key,
    replaces_state,
    replaced_is_known,
    sender,
    withheld,
    soft_failed,
    policy_server_spammy,
    case type when 'org.matrix.dummy_event' then 'dummy_event' when 'm.room.aliases' then 'room_aliases' end
        as unsent_type,
    is_state,
    outlier,
    history_visibility,
    case when type = 'm.room.history_visibility'
        then {{ first_of(['world_readable', 'shared', 'invited', 'joined'], 'history_visibility', 'replaced_visibility') }}
        else history_visibility
    end as boundary_visibility,
    sender_erased,
    is_call_invite,
    expires_at,
    member,
    case when member is not null then membership end as membership,
    case when member is not null
        then {{ first_of(['join', 'invite', 'knock', 'leave', 'ban'], 'membership_set', 'membership_replaced') }}
    end as widest_membership,
    member is not null and membership_set = 'leave' and membership_replaced in ('join', 'invite') as ends_membership
from visibility_inputs
{%- if is_partial %}
where event_id in (select event_id from {{ affected }})
{%- endif %}
