{{ config(meta={'affected_by': 'affected_event_states'}) }}
{%- set affected, events = ref('affected_event_states'), ref('events') -%}
{%- set is_partial = is_partial_build(affected, events) -%}
-- Synapse computes the state before an event from the states after the previous events, if it has all of these. A rejected
-- event has the state before it. A soft-failed event has its own state like any other: Synapse computes it first and only then
-- marks the event (_process_received_pdu, _check_for_soft_fail). Synapse updates the events of a fast join one after the other.
-- Only hashes and digests are compared, and only for state events, the pieces of state.
with
{%- for name, column in [('later_states', 'event_hash'), ('earlier_states', 'previous_hash')] %}
{{ name }} as (
    select
        {{ value_hash('events.event_id') }} as event_hash,
        xxhash64(events.room_id) as room_hash,
        events.is_state and not events.rejected as sets_state,
        events.type = 'm.room.create' and events.state_key = '' as is_creation,
        events.stream_ordering,
        events.room_id = positions.room_id as is_of_room,
        positions.position,
        positions.state_rows,
        positions.digest
    from {{ events }} as events
    inner join {{ source('state', 'state_positions') }} as positions on events.state_group = positions.state_group
    left anti join {{ source('synapse', 'partial_state_events') }} as incomplete on events.event_id = incomplete.event_id
    {%- if is_partial %}
    where {{ value_hash('events.event_id') }} in (select {{ column }} from {{ affected }})
    {%- endif %}
),
{% endfor %}
edges as (
    {%- if is_partial %}
    select event_hash, previous_hash from {{ affected }} where previous_hash is not null
    {%- else %}
    select {{ value_hash('event_id') }} as event_hash, {{ value_hash('prev_event_id') }} as previous_hash
    from {{ source('synapse', 'event_edges') }}
    {%- endif %}
),

-- While an event is an outlier, it has no state. Backfill stores the later event first, with the state that another server
-- sent. The stream IDs of two events are in the order of their arrival if both are positive, or both negative.
compared as (
    select
        edges.event_hash,
        count_if(
            earlier.event_hash is not null
            and former_outliers.event_hash is null
            and signum(earlier.stream_ordering) = signum(later.stream_ordering)
            and abs(earlier.stream_ordering) < abs(later.stream_ordering)
        ) as stored,
        count(*) as previous,
        min(earlier.digest) as digest_before,
        max(earlier.digest) as other_digest_before,
        max(edges.previous_hash) as previous_hash,
        max(earlier.position) as position_before,
        max(earlier.state_rows) as rows_before,
        bool_or(later.sets_state) as sets_state,
        bool_or(later.is_of_room) as is_of_room,
        max(later.state_rows) as state_rows,
        max(later.digest) as digest
    from edges
    inner join later_states as later
        on edges.event_hash = later.event_hash and not (later.is_creation and later.sets_state)
    left join earlier_states as earlier
        on edges.previous_hash = earlier.event_hash and later.room_hash = earlier.room_hash
    left join (
        select distinct {{ value_hash('event_id') }} as event_hash from {{ source('synapse', 'ex_outlier_stream') }}
    ) as former_outliers on edges.previous_hash = former_outliers.event_hash
    group by edges.event_hash
    having
        not is_of_room
        or (stored = previous and digest_before = other_digest_before and (sets_state or digest <> digest_before))
),

state_events as (
    select {{ value_hash('event_id') }} as event_hash, room_id, type, state_key, event_id
    from {{ events }}
    where is_state and not rejected
),

expected as (
    select
        compared.event_hash,
        compared.previous_hash,
        compared.state_rows,
        compared.digest,
        compared.digest_before
        ^ xxhash64(state_events.type, state_events.state_key, state_events.event_id)
        ^ if(
            replaced.event_id is null, 0L, xxhash64(state_events.type, state_events.state_key, replaced.event_id)
        ) as expected_digest,
        compared.rows_before + if(replaced.event_id is null, 1, 0) as expected_rows
    from compared
    inner join state_events on compared.event_hash = state_events.event_hash
    left join {{ source('state', 'state_intervals') }} as replaced
        on
            state_events.room_id = replaced.room_id
            and state_events.type = replaced.type
            and state_events.state_key = replaced.state_key
            and compared.position_before >= replaced.first_position
            and compared.position_before <= replaced.last_position
    where compared.sets_state and compared.is_of_room
    union all
    select event_hash, previous_hash, state_rows, digest, digest_before, rows_before
    from compared
    where not sets_state and is_of_room
    union all
    -- A state group of another room is wrong, whatever precedes the event.
    select event_hash, cast(null as bigint), state_rows, digest, cast(null as bigint), cast(null as bigint)
    from compared
    where not is_of_room
    union all
    -- Nothing precedes the creation of the room, even if the event has an edge.
    select
        creations.event_hash,
        cast(null as bigint),
        creations.state_rows,
        creations.digest,
        xxhash64(state_events.type, state_events.state_key, state_events.event_id),
        if(creations.is_of_room, 1L, null)
    from later_states as creations
    inner join state_events on creations.event_hash = state_events.event_hash
    where creations.is_creation and creations.sets_state
)

select event_hash, previous_hash, expected_rows, state_rows from expected
where expected_rows is null or digest <> expected_digest
