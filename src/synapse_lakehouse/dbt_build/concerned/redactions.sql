-- Redactions of which silver.redactions says something else than before, or may: it follows from the rows of the two
-- events, and from other redactions of the same event.
create table told as
select event_id from touched
union
select event_id from changed.rejections;

create table redacted as
select redacts from changed.redactions
union
select redacts from bronze.redactions semi join told using (event_id)
union
select event_id from told;

-- Of a ban that redacts, all rows are made again: it has one key.
create table bans_by_former_rows as
select event_id, redacts from silver.redactions where by_ban;

create table sent as
select event_id, room_id, sender from bronze.events
semi join bronze.room_ban_redactions as bans on bans.room_id = events.room_id and bans.user_id = sender;

create table banning as
select redacting_event_id as event_id from changed.room_ban_redactions
union
select redacting_event_id from bronze.room_ban_redactions as bans join told on told.event_id = redacting_event_id
union
select redacting_event_id from bronze.room_ban_redactions as bans
join (from sent semi join redacted on redacted.redacts = event_id) as stirred
    on bans.room_id = stirred.room_id and bans.user_id = sender
union
select event_id from bans_by_former_rows semi join redacted using (redacts);

create table replaced as
select event_id from changed.redactions
union
select event_id from bronze.redactions semi join told using (event_id)
union
select event_id from bronze.redactions semi join redacted using (redacts)
union
select event_id from banning;

create table read_room_ban_redactions as
select room_id, user_id, redacting_event_id, redact_end_ordering from bronze.room_ban_redactions
semi join banning on banning.event_id = redacting_event_id;

create table targets_of_bans as
select event_id from sent
semi join read_room_ban_redactions as bans on bans.room_id = sent.room_id and bans.user_id = sender;

create table read_redactions as
select event_id, redacts, recheck, have_censored from bronze.redactions
where event_id in (select event_id from replaced) or redacts in (select event_id from targets_of_bans);

create table redacting as
select event_id from read_redactions
union
select event_id from banning;

create table named as
select event_id from redacting
union
select redacts from read_redactions
union
select event_id from targets_of_bans;

create table read_events as
select event_id, room_id, sender, type, stream_ordering
from bronze.events semi join named using (event_id);

create table read_event_fields as
select event_id, unloadable, recheck_redaction from silver.event_fields semi join redacting using (event_id);

create table read_rejections as
select event_id, reason from bronze.rejections semi join redacting using (event_id);
