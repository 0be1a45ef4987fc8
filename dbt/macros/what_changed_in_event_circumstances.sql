{#
    Which events' circumstances may be others than before. What is said of one event follows from its own rows, from
    events that it names and is named by, from its place among the state groups, and from the settings that hold there.

    Rather too many than too few: a row that is made anew without need is as it was.
#}
{% macro what_changed_in_event_circumstances() -%}
    {%- set before = this -%}
    {%- set events, fields = source('synapse', 'events'), ref('event_fields') -%}
    {%- set groups, positions = source('synapse', 'event_to_state_groups'), source('state', 'state_positions') -%}
    {%- set intervals, faults = source('state', 'state_intervals'), source('state', 'state_faults') -%}
    {%- set are_settings = "type in ('m.room.history_visibility', 'm.room.join_rules') and state_key = ''" -%}

    {#- Of all events few name another one, or set a piece of state; they are asked for again and again. -#}
    {%- set naming, setting = step('naming'), step('setting') -%}
    {%- do keep(naming, "
        select event_id, redacts, replaces_state from " ~ fields ~ "
        where redacts is not null or replaces_state is not null
    ") -%}
    {%- do keep(setting, "select event_id, room_id, type, state_key from " ~ before ~ " where is_state") -%}

    {#- Events of which a row of their own is another one. -#}
    {%- do take_step('told', 'event_id: string', "
        select event_id from " ~ changed('events') ~ "
        union
        select event_id from " ~ changed('event_json') ~ "
        union
        select event_id from " ~ changed('rejections') ~ "
        union
        select event_id from " ~ changed('event_to_state_groups') ~ "
        union
        select event_id from " ~ changed('ex_outlier_stream') ~ "
        union
        select event_id from " ~ changed('partial_state_events') ~ "
        union
        select event_id from " ~ changed('un_partial_stated_event_stream') ~ "
        union
        select event_id from " ~ events ~ " where room_id in (select room_id from " ~ changed('rooms') ~ ")
    ") -%}

    {#- Whether a redaction is withheld, its target decides. -#}
    {%- do take_step('loaded', 'event_id: string', "
        select event_id from " ~ step('told') ~ "
        union
        select event_id from " ~ naming ~ " where redacts in (select event_id from " ~ step('told') ~ ")
    ") -%}

    {#- State events that replace one of these, and those that are redacted, or no longer. -#}
    {%- do take_step('named', 'event_id: string', "
        select event_id from " ~ step('loaded') ~ "
        union
        select event_id from " ~ naming ~ " where replaces_state in (select event_id from " ~ step('loaded') ~ ")
        union
        select redacts from " ~ ref('redactions') ~ " where event_id in (select event_id from " ~ step('told') ~ ")
        union
        select redacts from " ~ changed('redactions') ~ "
    ") -%}

    {#- The first one of the events that set the same piece of state replaces nothing. -#}
    {%- do take_step('pieces', 'room_id: string, type: string, state_key: string', "
        select room_id, type, state_key from " ~ setting ~ "
        where event_id in (select event_id from " ~ step('told') ~ ")
        union
        select events.room_id, events.type, fields.state_key
        from " ~ events ~ " as events
        inner join " ~ fields ~ " as fields on events.event_id = fields.event_id
        where events.event_id in (select event_id from " ~ step('told') ~ ") and fields.state_key is not null
    ") -%}

    {#- State groups that are elsewhere among the numbers, or have no state any more. -#}
    {%- do take_step('moved', 'state_group: bigint', "
        select coalesce(was.state_group, now.state_group) as state_group
        from " ~ former(positions) ~ " as was
        full outer join " ~ positions ~ " as now on was.state_group = now.state_group
        where was.position is distinct from now.position or was.room_id is distinct from now.room_id
        union
        select coalesce(was.state_group, now.state_group)
        from (select * from " ~ former(faults) ~ " where fault = 'cycle') as was
        full outer join (select * from " ~ faults ~ " where fault = 'cycle') as now on was.state_group = now.state_group
        where was.state_group is null or now.state_group is null
    ") -%}

    {#- Rooms in which other settings hold at a position that was there before: an interval that only grew at its end, as
        the last one does with each new position, holds where it held. And rooms that keep their messages otherwise. -#}
    {%- set was, now = former(intervals), intervals -%}
    {%- set same = "was.room_id = now.room_id and was.type = now.type and was.state_key = now.state_key"
        ~ " and was.event_id = now.event_id" -%}
    {%- do take_step('rooms', 'room_id: string', "
        select was.room_id from (select * from " ~ was ~ " where " ~ are_settings ~ ") as was
        left anti join " ~ now ~ " as now
            on " ~ same ~ " and now.first_position <= was.first_position and now.last_position >= was.last_position
        union
        select now.room_id
        from (
            select now.*, least(now.last_position, ends.position) as last_before
            from (select * from " ~ now ~ " where " ~ are_settings ~ ") as now
            inner join (
                select room_id, max(position) as position
                from " ~ former(positions) ~ " group by room_id
            ) as ends on now.room_id = ends.room_id and now.first_position <= ends.position
        ) as now
        left anti join " ~ was ~ " as was
            on " ~ same ~ " and was.first_position <= now.first_position and was.last_position >= now.last_before
        union
        select room_id from " ~ changed('room_retention') ~ "
        union
        select room_id from " ~ source('synapse', 'room_retention') ~ "
        where event_id in (select event_id from " ~ changed('current_state_events') ~ ")
    ") -%}

    {#- State groups in which a setting holds that is read anew. -#}
    {%- do take_step('held', 'state_group: bigint', "
        select state_group from " ~ step('moved') ~ "
        union
        select positions.state_group
        from " ~ positions ~ " as positions
        inner join (
            select * from " ~ now ~ " where " ~ are_settings ~ " and event_id in (select event_id from " ~ step('loaded') ~ ")
        ) as stirred
            on positions.room_id = stirred.room_id
            and positions.position between stirred.first_position and stirred.last_position
    ") -%}

    {%- do take_step('replaced', 'event_id: string', "
        select event_id from " ~ step('named') ~ " where event_id is not null
        union
        " ~ events_that_set(step('pieces')) ~ "
        union
        select event_id from " ~ groups ~ " where state_group in (select state_group from " ~ step('held') ~ ")
        union
        select event_id from " ~ before ~ " where room_id in (select room_id from " ~ step('rooms') ~ ")
        union
        select event_id from " ~ before ~ " where sender in (select user_id from " ~ changed('erased_users') ~ ")
    ") -%}

    {%- do take_step('looked_up', 'event_id: string', "
        select event_id from " ~ step('replaced') ~ "
        union
        select redacts from " ~ naming ~ " where event_id in (select event_id from " ~ step('replaced') ~ ")
        union
        select replaces_state from " ~ naming ~ " where event_id in (select event_id from " ~ step('replaced') ~ ")
        union
        select event_id from " ~ now ~ "
        where " ~ are_settings ~ " and room_id in (
            select room_id from " ~ events ~ " where event_id in (select event_id from " ~ step('replaced') ~ ")
        )
    ") -%}
    {%- do take_step('pieces_of_replaced', 'room_id: string, type: string, state_key: string', "
        select room_id, type, state_key from " ~ setting ~ "
        where event_id in (select event_id from " ~ step('replaced') ~ ")
    ") -%}
    {%- do take_step('read', 'event_id: string', "
        select event_id from " ~ step('looked_up') ~ " where event_id is not null
        union
        select redacts from " ~ naming ~ "
        where redacts is not null and event_id in (select event_id from " ~ step('looked_up') ~ ")
        union
        " ~ events_that_set(step('pieces_of_replaced')) ~ "
    ") -%}
    {%- for relation in [events, fields, groups] -%}
        {%- do read_once(relation) -%}
    {%- endfor -%}
{%- endmacro %}


{# Events that set one of these pieces of state, as far as they were there before. #}
{% macro events_that_set(pieces) -%}
    select before.event_id
    from {{ step('setting') }} as before
    left semi join {{ pieces }} as pieces
        on before.room_id = pieces.room_id and before.type = pieces.type and before.state_key = pieces.state_key
{%- endmacro %}
