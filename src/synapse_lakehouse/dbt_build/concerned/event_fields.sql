-- Events of which silver.event_fields says something else than before, or may.
create table replaced as select event_id from touched;

-- Nearly all of them are new, so that nothing has to be looked for among all events.
create table older as
select event_id from replaced anti join newer.events using (event_id);

create table read_events as
select event_id, room_id, type, state_key from newer.events semi join replaced using (event_id)
union all
select event_id, room_id, type, state_key from bronze.events semi join older using (event_id);
