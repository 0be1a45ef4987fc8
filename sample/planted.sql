-- What a homeserver shows only after days: a server that delivered a day late and then fell silent, and a background
-- update that waits. Only times of receipt change, and no event.
with live as (
  select event_id, row_number() over (order by stream_ordering desc) as number
  from events join event_json using (event_id)
  where sender like '%:elsewhere.example' and stream_ordering > 0 and not outlier and rejection_reason is null
    and coalesce(internal_metadata::jsonb ->> 'soft_failed', 'false') = 'false'
    and event_id not in (select event_id from ex_outlier_stream)
)
update events set received_ts = received_ts + (26 - (number - 1) / 3) * 3600000
from live where live.event_id = events.event_id and number <= 12;

-- The two last messages, which this server's users wrote after the other homeserver had stopped.
update events set received_ts = received_ts + 84 * 3600000
where stream_ordering > (select max(stream_ordering) - 2 from events);

-- Synapse computes the same values again if it runs on this database.
insert into background_updates (update_name, progress_json) values (
  'event_fields_sender_url',
  '{"target_min_stream_id_inclusive": 2, "max_stream_id_exclusive": 102, "rows_inserted": 4242}'
);
