-- Events of which silver.event_fields says something else than before, or may.
create table replaced as
select event_id from changed.event_json
union
select event_id from changed.events
union
select event_id from bronze.events semi join changed.rooms using (room_id);

create table read_events as
select event_id, room_id, type, state_key from bronze.events semi join replaced using (event_id);
