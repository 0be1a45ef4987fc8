-- Of all events, the memberships of users of this server.
create table read_events as
select distinct room_id, type, state_key from bronze.events
where type = 'm.room.member' and is_local(state_key);

create table read_event_circumstances as
select event_id, room_id, type, membership, withheld
from silver.event_circumstances
semi join (from silver.state_intervals where type = 'm.room.member' and is_local(state_key)) using (event_id)
where type = 'm.room.member' and membership is not null and withheld is null
union all
-- Whatever is in it, that a room is there.
select distinct null, room_id, null, null, null from silver.event_circumstances;
