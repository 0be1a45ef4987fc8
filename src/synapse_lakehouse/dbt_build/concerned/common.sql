-- What the files beside this one go on from: events of which a row of their own, their JSON or their room is another one.
create table touched as
select event_id from changed.events
union
select event_id from changed.event_json
union
select event_id from bronze.events semi join changed.rooms using (room_id);

