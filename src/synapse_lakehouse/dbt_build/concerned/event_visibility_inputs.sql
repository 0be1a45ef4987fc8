-- Events whose visibility_inputs may be others than before. What silver.event_visibility_inputs says of one event follows from
-- its own rows, from events that it names and is named by, from its place among the state groups, and from the settings
-- that hold there. Rather too many than too few: a row that is made anew without need is as it was.

create macro is_setting(type, state_key) as
    type in ('m.room.history_visibility', 'm.room.join_rules') and state_key = '';

-- Of all events few name another one, or set a piece of state; they are asked for again and again.
create table naming as
select event_id, state_key, redacts, replaces_state from silver.event_fields
where state_key is not null or redacts is not null or replaces_state is not null;

create table setting as
select event_id, room_id, type, state_key from silver.event_visibility_inputs where is_state;

-- Events of which a row of their own is another one.
create table told as
select event_id from touched
union
select event_id from changed.rejections
union
select event_id from changed.event_to_state_groups
union
select event_id from changed.ex_outlier_stream
union
select event_id from changed.partial_state_events
union
select event_id from changed.un_partial_stated_event_stream;

-- Whether a redaction is withheld, its target decides.
create table loaded as
select event_id from told
union
select event_id from naming where redacts in (select event_id from told);

-- Bans that redact something else than before, or may.
create table bans as
select room_id, user_id from changed.room_ban_redactions
union
select room_id, user_id from bronze.room_ban_redactions join told on told.event_id = redacting_event_id;

-- State events that replace one of these, and those that are redacted, or no longer.
create table named as
select event_id from loaded
union
select event_id from naming where replaces_state in (select event_id from loaded)
union
select redacts from bronze.redactions semi join told using (event_id)
union
select redacts from changed.redactions
union
select event_id from bronze.events semi join bans on bans.room_id = events.room_id and bans.user_id = sender;

create table named_events as
select event_id, room_id, type from bronze.events semi join named using (event_id);

-- The first one of the events that set the same piece of state replaces nothing.
create table pieces as
select room_id, type, state_key from setting semi join told using (event_id)
union
select room_id, type, state_key
from (from named_events semi join told using (event_id))
join (from naming where state_key is not null) using (event_id);

-- State groups that are elsewhere among the numbers, or have no state any more.
create table moved as
select state_group
from former.state_positions as was
full join silver.state_positions as now using (state_group)
where was.position is distinct from now.position or was.room_id is distinct from now.room_id
union
(
    select state_group from former.state_faults where fault = 'cycle'
    except
    select state_group from silver.state_faults where fault = 'cycle'
)
union
(
    select state_group from silver.state_faults where fault = 'cycle'
    except
    select state_group from former.state_faults where fault = 'cycle'
);

-- Rooms in which other settings hold at a position that was there before: an interval that only grew at its end, as the
-- last one does with each new position, holds where it held. And rooms that keep their messages otherwise.
create table state_before as select * from former.state_intervals where is_setting(type, state_key);
create table held_now as select * from silver.state_intervals where is_setting(type, state_key);

create table rooms as
select was.room_id
from state_before as was
anti join held_now as now
    on was.room_id = now.room_id and was.type = now.type and was.event_id = now.event_id
    and now.first_position <= was.first_position and now.last_position >= was.last_position
union
select now.room_id
from (
    select held_now.*, least(held_now.last_position, ends.position) as last_before
    from held_now
    join (select room_id, max(position) as position from former.state_positions group by room_id) as ends
        on held_now.room_id = ends.room_id and held_now.first_position <= ends.position
) as now
anti join state_before as was
    on was.room_id = now.room_id and was.type = now.type and was.event_id = now.event_id
    and was.first_position <= now.first_position and was.last_position >= now.last_before
union
select room_id from changed.room_retention
union
select room_id from bronze.room_retention semi join changed.current_state_events using (event_id);

-- State groups in which a setting holds that is read anew.
create table held as
select state_group from moved
union
select positions.state_group
from silver.state_positions as positions
join (select * from held_now semi join loaded using (event_id)) as stirred
    on positions.room_id = stirred.room_id
    and positions.position between stirred.first_position and stirred.last_position;

create macro events_that_set(pieces) as table
    select event_id from setting semi join query_table(pieces) using (room_id, type, state_key);

create table replaced as
select event_id from named where event_id is not null
union
select event_id from events_that_set('pieces')
union
select event_id from bronze.event_to_state_groups semi join held using (state_group)
union
select event_id from silver.event_visibility_inputs semi join rooms using (room_id)
union
select event_id from silver.event_visibility_inputs where sender in (select user_id from changed.erased_users);

-- Wherever an event is replaced, the settings of its room are read.
create table rooms_of_replaced as
select room_id from named_events
union
select room_id from pieces
union
select room_id from silver.state_positions semi join held using (state_group)
union
select room_id from rooms
union
select room_id from silver.event_visibility_inputs where sender in (select user_id from changed.erased_users);

create table looked_up as
select event_id from replaced
union
select redacts from naming semi join replaced using (event_id)
union
select replaces_state from naming semi join replaced using (event_id)
union
select event_id from held_now semi join rooms_of_replaced using (room_id);

create table pieces_of_replaced as
select room_id, type, state_key from setting semi join replaced using (event_id);

create table read as
select event_id from looked_up where event_id is not null
union
select redacts from naming semi join looked_up using (event_id) where redacts is not null
union
select event_id from events_that_set('pieces_of_replaced');

create table read_events as
select event_id, room_id, type, sender, origin_server_ts, topological_ordering, outlier
from bronze.events semi join read using (event_id);

create table read_event_fields as
select
    event_id, unloadable, state_key, soft_failed, policy_server_spammy, recheck_redaction, replaces_state, redacts,
    membership, history_visibility, join_rule, prev_content_membership, prev_content_history_visibility, has_prev_content_and_sender
from silver.event_fields semi join read using (event_id);

create table read_event_to_state_groups as
select event_id, state_group from bronze.event_to_state_groups semi join read using (event_id);

create table read_state_positions as
select room_id, state_group, position
from silver.state_positions semi join read_event_to_state_groups using (state_group);

create table read_state_intervals as
select room_id, type, state_key, first_position, last_position, event_id
from held_now semi join rooms_of_replaced using (room_id);

create table read_rejections as select event_id, reason from bronze.rejections semi join read using (event_id);

create table read_ex_outlier_stream as
select event_id from bronze.ex_outlier_stream semi join read using (event_id);

create table read_partial_state_events as
select event_id from bronze.partial_state_events semi join read using (event_id);

create table read_un_partial_stated_event_stream as
select event_id from bronze.un_partial_stated_event_stream semi join read using (event_id);
