-- Each user of this server who was a member of a room, once.
create table read_local_current_membership as
select distinct room_id, user_id from bronze.local_current_membership;

create table read_room_memberships as
select distinct room_id, user_id from bronze.room_memberships
anti join read_local_current_membership using (room_id, user_id)
where is_local(user_id);

create table read_events as
select distinct room_id, type, state_key from bronze.events
anti join read_local_current_membership as members on members.room_id = events.room_id and user_id = state_key
anti join read_room_memberships as members on members.room_id = events.room_id and user_id = state_key
where type = 'm.room.member' and is_local(state_key);

create table read_event_visibility_inputs as
select event_id, room_id, type, membership, withheld
from silver.event_visibility_inputs
semi join (from silver.state_intervals where type = 'm.room.member' and is_local(state_key)) using (event_id)
where type = 'm.room.member' and membership is not null and withheld is null
union all
-- Whatever is in it, that a room is there.
select distinct null, room_id, null, null, null from silver.event_visibility_inputs;
