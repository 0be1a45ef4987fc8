-- Events of which silver.event_fields says something else than before, or may.
create table replaced as select event_id from touched;

create table read_events as
select event_id, room_id, type, state_key from bronze.events semi join replaced using (event_id);
