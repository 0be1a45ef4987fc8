{# A history visibility as Synapse understands it: what is missing or invalid is `shared`. #}
{% macro understood_visibility(value) -%}
    case when {{ value }} in ('world_readable', 'invited', 'joined') then {{ value }} else 'shared' end
{%- endmacro %}


{# A membership as Synapse understands that of a membership event: what is missing or invalid is `leave`. #}
{% macro understood_membership(value) -%}
    case when {{ value }} in ('join', 'invite', 'knock', 'ban') then {{ value }} else 'leave' end
{%- endmacro %}


{#
    When an event that expired should have been purged for long: Synapse goes by when it received the event, keeps
    everything for a least lifetime, and its jobs take their time.
#}
{% macro overdue_at(circumstances, events) -%}
    {{ events }}.received_ts
    + greatest({{ circumstances }}.expires_at - {{ events }}.origin_server_ts, {{ var('retention_least_lifetime') }})
    + {{ var('retention_purge_delay') }}
{%- endmacro %}


{# The first of `order` that is among two values. #}
{% macro first_of(order, one, other) -%}
    case
        {%- for value in order %}
        when {{ one }} = '{{ value }}' or {{ other }} = '{{ value }}' then '{{ value }}'
        {%- endfor %}
    end
{%- endmacro %}


{# Format of the events of a room of this version (synapse.api.room_versions); NULL for a version that is not known. #}
{% macro event_format(room_version) -%}
    case
        when {{ room_version }} in ('1', '2') then 1
        when {{ room_version }} = '3' then 2
        when {{ room_version }} in ('4', '5', '6', '7', '8', '9', '10', '11') then 3
        when {{ room_version }} in ('org.matrix.msc3757.10', 'org.matrix.msc3757.11') then 3
        when {{ room_version }} in ('12', 'org.matrix.hydra.11') then 4
    end
{%- endmacro %}


{# Whether a Matrix id is one of this server. #}
{% macro is_local(matrix_id) -%}
    {{ server_name(matrix_id) }} = '{{ var("server_name") | replace("'", "") }}'
{%- endmacro %}


{#
    Who may see which event: the questions of synapse.visibility.filter_and_transform_events_for_client, in its order.
    One row for each event, reader and way of reading, as gold.event_visibility describes them.

    events: a relation with columns of silver.event_circumstances. readers: one with those of gold.visibility_intervals.
    peeks: whether the readers look in without being members, one or both of false and true.
#}
{% macro visibility(events, readers, peeks) -%}
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
        not event.state_is_known as state_unknown,
        event.history_visibility,
        case when not event.sender_erased then event.boundary_visibility end as lax_visibility,
        event.sender_erased,
        event.rings,
        event.ends_a_stay,
        coalesce(event.member = reader.user_id, false) as is_own,
        event.membership as own_membership,
        case when event.member = reader.user_id then event.most_joined else reader.membership end as decisive_membership,
        reader.membership
    from {{ events }} as event
    inner join {{ readers }} as reader
        on
            event.room_id = reader.room_id
            and event.position >= reader.first_position
            and event.position <= reader.last_position
    cross join ({% for peeking in peeks %}select {{ peeking }} as peeking{{ ' union all ' if not loop.last }}{% endfor %}) as peek
    cross join {{ ref('as_of') }} as moment
    left join {{ source('synapse', 'ignored_users') }} as ignored
        on reader.user_id = ignored.ignorer_user_id and event.sender = ignored.ignored_user_id
    left join {{ ref('admin_options') }} as options on reader.user_id = options.user_id
),

-- One expression with no other one on top but what names its outcome: Spark copies an expression into each that uses it.
decided as (
    select
        room_id,
        user_id,
        event_id,
        peeking,
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
            when lax_visibility = 'world_readable' and not rings then 'world_readable'
            when lax_visibility = 'shared' and not peeking and not rings then 'shared'
            when lax_visibility = 'world_readable' or lax_visibility = 'shared' and not peeking then 'call_invite'
            when is_own and ends_a_stay and sender_erased then 'sender_erased'
            when is_own and ends_a_stay then 'own_leave'
            when decisive_membership = 'join' and rings then 'call_invite'
            when decisive_membership = 'join' then 'joined'
            when history_visibility = 'joined' then 'not_joined'
            when history_visibility = 'invited' and coalesce(decisive_membership, '') <> 'invite' then 'not_invited'
            when history_visibility = 'shared' and peeking then 'peeking'
            when rings then 'call_invite'
            when sender_erased then 'sender_erased'
            else history_visibility
        end as rule,
        case
            when is_own then own_membership
            when not outlier and not state_unknown then coalesce(membership, 'leave')
        end as membership
    from readings
)

select
    room_id,
    user_id,
    event_id,
    peeking,
    case
        when rule in ('world_readable', 'shared', 'joined', 'invited', 'own_leave', 'own_outlier') then 'full'
        when rule = 'sender_erased' then 'redacted'
        else 'hidden'
    end as outcome,
    rule,
    membership
from decided
{%- endmacro %}
