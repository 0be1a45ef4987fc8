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

create table replaced as
select event_id from changed.redactions
union
select event_id from bronze.redactions semi join told using (event_id)
union
select event_id from bronze.redactions semi join redacted using (redacts);

create table read_redactions as
select event_id, redacts, recheck, have_censored from bronze.redactions semi join replaced using (event_id);

create table named as
select event_id from read_redactions
union
select redacts from read_redactions;

create table read_events as
select event_id, room_id, sender, type, stream_ordering
from bronze.events semi join named using (event_id);

create table read_event_fields as
select event_id, recheck_redaction from silver.event_fields semi join read_redactions using (event_id);

create table read_rejections as
select event_id, reason from bronze.rejections semi join read_redactions using (event_id);
