{# A history visibility as Synapse interprets it: a missing or invalid value is `shared`. #}
{% macro understood_visibility(value) -%}
    case when {{ value }} in ('world_readable', 'invited', 'joined') then {{ value }} else 'shared' end
{%- endmacro %}


{# A membership of a membership event as Synapse interprets it: a missing or invalid value is `leave`. #}
{% macro understood_membership(value) -%}
    case when {{ value }} in ('join', 'invite', 'knock', 'ban') then {{ value }} else 'leave' end
{%- endmacro %}


{#
    Time after which the purge of an expired event is overdue. Synapse counts from the receipt of the event, retains
    every event for a minimum lifetime, and its jobs take time. The numbers may be near the limits of bigint.
#}
{% macro overdue_at(visibility_inputs, events) -%}
    cast({{ events }}.received_ts as decimal(38, 0))
    + greatest(
        cast({{ visibility_inputs }}.expires_at as decimal(38, 0)) - {{ events }}.origin_server_ts,
        cast({{ var('retention_least_lifetime') }} as decimal(38, 0))
    )
    + {{ var('retention_purge_delay') }}
{%- endmacro %}


{# The first value in `order` that equals one of two values. #}
{% macro first_of(order, left, right) -%}
    case
        {%- for value in order %}
        when {{ left }} = '{{ value }}' or {{ right }} = '{{ value }}' then '{{ value }}'
        {%- endfor %}
    end
{%- endmacro %}


{# Whether a Matrix ID belongs to this server. #}
{% macro is_local(matrix_id) -%}
    (instr({{ matrix_id }}, ':') > 0 and {{ server_name(matrix_id) }} = '{{ var("server_name") | replace("'", "") }}')
{%- endmacro %}


{#
    Whether the homeserver's Synapse has a rule of the variable `rules_since`. The schema changes of its database show it.

    deltas: these schema changes; default: all that were applied.
#}
{% macro has_rule(name, deltas=none) -%}
    (
        select count(*) > 0 from {{ deltas or source('synapse', 'applied_schema_deltas') }}
        where file = '{{ var("rules_since")[name]["delta"] }}'
    )
{%- endmacro %}


{# Memberships that the rules distinguish. The rules for a user's own membership events are separate. #}
{% macro membership_class(membership) -%}
    case when {{ membership }} in ('join', 'invite') then {{ membership }} else 'other' end
{%- endmacro %}


{#
    The rule that decides whether an event is shown, in the order of
    synapse.visibility.filter_and_transform_events_for_client. Uses columns of silver.event_visibility_inputs and
    `as_of`.

    membership: the membership that counts. peeking: whether the reader reads without being a member. The other
    arguments are conditions that are true for few readers.
#}
{% macro rule(membership, peeking, is_own='false', ignores_sender='false', sees_soft_failed='false', sees_spam='false') -%}
        case
            when withheld is not null then withheld
            when soft_failed and not {{ sees_soft_failed }} and not ({{ sees_spam }} and policy_server_spammy)
                then 'soft_failed'
            when unsent_type = 'dummy_event' then 'dummy_event'
            when not is_state and {{ ignores_sender }} then 'sender_ignored'
            when unsent_type = 'room_aliases' then 'room_aliases'
            when expires_at < as_of then 'retention'
            when outlier and {{ is_own }} then 'own_outlier'
            when outlier then 'outlier'
            when not state_is_known then 'state_unknown'
            when not sender_erased and boundary_visibility = 'world_readable' and not is_call_invite then 'world_readable'
            when not sender_erased and boundary_visibility = 'shared' and not {{ peeking }} and not is_call_invite then 'shared'
            when not sender_erased and (boundary_visibility = 'world_readable' or boundary_visibility = 'shared' and not {{ peeking }})
                then 'call_invite'
            when {{ is_own }} and ends_membership and sender_erased then 'sender_erased'
            when {{ is_own }} and ends_membership then 'own_leave'
            when {{ membership }} = 'join' and is_call_invite then 'call_invite'
            when {{ membership }} = 'join' then 'joined'
            when history_visibility = 'joined' then 'not_joined'
            when history_visibility = 'invited' and {{ membership }} <> 'invite' then 'not_invited'
            when history_visibility = 'shared' and {{ peeking }} then 'peeking'
            when is_call_invite then 'call_invite'
            when sender_erased then 'sender_erased'
            else history_visibility
        end
{%- endmacro %}


{# The outcome of a rule. #}
{% macro outcome(rule) -%}
    case
        when {{ rule }} in ('world_readable', 'shared', 'joined', 'invited', 'own_leave', 'own_outlier') then 'full'
        when {{ rule }} = 'sender_erased' then 'redacted'
        else 'hidden'
    end
{%- endmacro %}


{#
    Number of the bucket of a room's positions. Buckets are short at the room's start and grow, so that their number
    stays small. Events are joined with readers by bucket. Without buckets, each interval of every reader would be
    compared with every event of the room.
#}
{% macro position_bucket(position) -%}
    cast(least(floor(sqrt(sqrt(greatest({{ position }}, 0)))), {{ last_position_bucket() }}) as bigint)
{%- endmacro %}


{% macro last_position_bucket() -%}
    63
{%- endmacro %}


{#
    Visibility of events. One row for each event, reader and value of peeking, as gold.event_visibility describes them.

    For most readers only the membership decides, so the rules are evaluated once for each event and membership. For all
    other readers, such as the member of a membership event, the rules are evaluated for each reader.

    Readers are joined with events once, not once for each value of peeking. The left join prevents DuckDB from
    multiplying the events by the values of peeking first.

    events: a relation with columns of silver.event_visibility_inputs. readers: a relation with columns of
    gold.visibility_intervals. peeks: values of peeking, one or both of false and true.
#}
{% macro visibility(events, readers, peeks) -%}
with peeks as (
    {% for peeking in peeks %}select {{ peeking }} as peeking{{ ' union all ' if not loop.last }}{% endfor %}
),

memberships as (
    select 'join' as membership_class
    union all
    select 'invite' as membership_class
    union all
    select 'other' as membership_class
),

bucketed_readers as (
    select
        reader.room_id,
        reader.user_id,
        reader.first_position,
        reader.last_position,
        buckets.bucket,
        -- A comparison of two strings is faster than one of nullable strings, and a member's ID may be any text.
        coalesce('=' || reader.user_id, 'not a member') as user_key,
        reader.membership as state_membership,
        {{ membership_class('reader.membership') }} as membership_class,
        coalesce(options.sees_soft_failed, false) as sees_soft_failed,
        coalesce(options.sees_policy_server_spammy, false) as sees_spam,
        ignorers.ignorer_user_id is not null or options.user_id is not null as has_own_rules
    from {{ readers }} as reader
    inner join range(0, {{ last_position_bucket() }} + 1) as buckets(bucket)
        on
            buckets.bucket >= {{ position_bucket('reader.first_position') }}
            and buckets.bucket <= {{ position_bucket('reader.last_position') }}
    left join {{ ref('admin_options') }} as options on reader.user_id = options.user_id
    left join (select distinct ignorer_user_id from {{ source('synapse', 'ignored_users') }}) as ignorers
        on reader.user_id = ignorers.ignorer_user_id
),

{% for kind in ['without_member', 'with_member'] -%}
-- One expression, used once: Spark copies an expression into each expression that uses it.
rules_{{ kind }} as (
    select
        room_id,
        event_id,
        position,
        {{ position_bucket('position') }} as bucket,
        '=' || member as member_key,
        membership_class,
        not outlier and state_is_known as membership_is_known,
        {{ rule('membership_class', 'false') }} as rule,
        {{ rule('membership_class', 'true') }} as peeking_rule
    from {{ events }}
    cross join memberships
    cross join {{ ref('retention_time') }}
    where member is {{ 'not null' if kind == 'with_member' else 'null' }}
),

outcomes_{{ kind }} as (
    select
        *,
        {{ outcome('rule') }} as outcome,
        {{ outcome('peeking_rule') }} as peeking_outcome
    from rules_{{ kind }}
),

pairs_{{ kind }} as (
    select
        events.*,
        reader.user_id,
        reader.state_membership
    from outcomes_{{ kind }} as events
    inner join bucketed_readers as reader
        on
            events.room_id = reader.room_id
            and events.membership_class = reader.membership_class
            and events.bucket = reader.bucket
            and events.position >= reader.first_position
            and events.position <= reader.last_position
            {{ 'and events.member_key <> reader.user_key' if kind == 'with_member' }}
            and not reader.has_own_rules
),

{% endfor -%}
exceptional_pairs as (
    {%- for condition in ['reader.has_own_rules', 'not reader.has_own_rules and event.member = reader.user_id'] %}
    select
        event.*,
        reader.user_id,
        reader.state_membership,
        reader.membership_class,
        reader.sees_soft_failed,
        reader.sees_spam,
        coalesce(event.member = reader.user_id, false) as is_own
    from {{ events }} as event
    inner join bucketed_readers as reader
        on
            event.room_id = reader.room_id
            and {{ position_bucket('event.position') }} = reader.bucket
            and event.position >= reader.first_position
            and event.position <= reader.last_position
            and {{ condition }}
    {{- '\n    union all' if not loop.last }}
    {%- endfor %}
),

exceptional_rules as (
    select
        exceptional_pairs.room_id,
        exceptional_pairs.user_id,
        exceptional_pairs.event_id,
        peeks.peeking,
        {{ rule(
            'case when is_own then widest_membership else membership_class end', 'peeking', 'is_own',
            'ignored.ignored_user_id is not null', 'sees_soft_failed', 'sees_spam'
        ) }} as rule,
        case
            when is_own then membership
            when not outlier and state_is_known then coalesce(state_membership, 'leave')
        end as membership
    from exceptional_pairs
    cross join peeks
    cross join {{ ref('retention_time') }}
    left join {{ source('synapse', 'ignored_users') }} as ignored
        on exceptional_pairs.user_id = ignored.ignorer_user_id and exceptional_pairs.sender = ignored.ignored_user_id
)

-- Most events are no memberships, so most pairs need no comparison of user IDs.
{% for kind in ['without_member', 'with_member'] -%}
select
    pairs.room_id,
    pairs.user_id,
    pairs.event_id,
    peeks.peeking,
    case when peeks.peeking then pairs.peeking_outcome else pairs.outcome end as outcome,
    case when peeks.peeking then pairs.peeking_rule else pairs.rule end as rule,
    case when pairs.membership_is_known then coalesce(pairs.state_membership, 'leave') end as membership
from pairs_{{ kind }} as pairs
left join peeks on true
union all
{% endfor -%}
select
    room_id,
    user_id,
    event_id,
    peeking,
    {{ outcome('rule') }} as outcome,
    rule,
    membership
from exceptional_rules
{%- endmacro %}
