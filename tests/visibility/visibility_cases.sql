-- Makes a copy of the sample harsh: whatever decides who may see an event happens here, most of it to some events of every
-- kind. Nothing depends on a run's ids but which event it happens to; the same sample gives the same database.
--
-- Event ids are hashes of type, sender, time and most of the content since room version 3: those change only in rooms of
-- versions 1 and 2 ("free" here). unsigned, internal metadata and the other tables are free everywhere.

create function pg_temp.patched(document text, change jsonb) returns text immutable language sql
  as $$ select (document::jsonb || change)::text $$;

create temporary table numbered as
  select e.event_id, e.room_id, e.type, e.sender, e.state_key is not null as is_state, r.room_version in ('1', '2') as free,
    row_number() over (partition by e.type, r.room_version in ('1', '2') order by e.event_id)::int as n
  from events e join rooms r using (room_id) join event_json j using (event_id)
  where strpos(j.json, '\u0000') = 0 and not e.outlier;
create temporary table people as
  select u.name as user_id, row_number() over (order by count(m.event_id) desc, u.name)::int as rank,
    substring(u.name from strpos(u.name, ':')) as at_home
  from users u left join room_memberships m on m.user_id = u.name group by u.name;

-- Who asks -----------------------------------------------------------------------------------------------------------

insert into ignored_users
  select a.user_id, b.user_id from people a join people b
    on (a.rank, b.rank) in ((1, 2), (2, 3), (3, 6), (6, 3), (5, 1), (8, 9), (10, 10))
  on conflict do nothing;

insert into erased_users
  select user_id from people where rank in (4, 7, 11)
  union select sender from (select sender from numbered where type = 'm.room.history_visibility' and free
    group by sender order by count(*) desc, sender offset 1 limit 1) author
  union select min(sender) from numbered where sender not in (select user_id from people)
  on conflict do nothing;

-- Administrators who want to see soft-failed events, those marked as spam, or neither, and one who is no administrator.
insert into account_data (user_id, account_data_type, stream_id, content)
  select user_id, 'io.element.synapse.admin_client_config', (select min(stream_id) from account_data), content
  from people join (values
    (1, '{"return_soft_failed_events": true, "return_policy_server_spammy_events": false}'),
    (2, '{"return_policy_server_spammy_events": true}'),
    (5, '{"return_soft_failed_events": false}'),
    (6, '{"return_soft_failed_events": true}')
  ) as wish (rank, content) using (rank)
  on conflict (user_id, account_data_type) do update set content = excluded.content;
update users set admin = 1
  where name in (select user_id from people where rank in (1, 2, 3, 5))
    or name in (select user_id from account_data where account_data_type = 'io.element.synapse.admin_client_config')
      and name not in (select user_id from people where rank = 6);

-- Members of whom only one table knows.
insert into local_current_membership (room_id, user_id, event_id, membership)
  select min(room_id), '@lonely' || (select min(at_home) from people), '$gone', 'leave' from numbered where not free;
insert into room_memberships (event_id, user_id, sender, room_id, membership)
  select '$phantom', '@phantom' || p.at_home, '@phantom' || p.at_home, (select max(room_id) from numbered where not free), 'invite'
  from people p where rank = 1;

-- What the events are, where that is free ------------------------------------------------------------------------------

create temporary table retyped as
  select event_id, to_type, content from (
    select event_id, case n % 16
        when 0 then 'org.matrix.dummy_event' when 1 then 'm.room.aliases' when 2 then 'm.call.invite'
        when 3 then 'm.room.history_visibility' when 4 then 'm.room.redaction' when 5 then 'm.room.redaction' end as to_type,
      case n % 16 when 3 then '{"history_visibility": "world_readable"}'::jsonb else '{}' end as content
    from numbered where free and type = 'm.room.message'
    union all
    select event_id, case n % 2 when 0 then 'm.call.invite' else 'org.matrix.dummy_event' end, null
    from numbered where free and type = 'm.room.topic'
    union all
    select event_id, 'm.room.aliases', null from numbered where free and type = 'm.room.canonical_alias' and n % 2 = 0
    union all
    select event_id, 'm.room.retention', case n % 4
        when 0 then '{"max_lifetime": 864000000}'::jsonb when 1 then '{"max_lifetime": 0}'
        when 2 then '{"min_lifetime": 1}' else '{"max_lifetime": 31536000000, "min_lifetime": 864000000}' end
    from numbered where free and type = 'm.room.name'
  ) as chosen where to_type is not null;
update event_json j set json = pg_temp.patched(json,
    jsonb_build_object('type', to_type) || case when content is null then '{}' else jsonb_build_object('content', content) end)
  from retyped r where r.event_id = j.event_id;
update events e set type = to_type from retyped r where r.event_id = e.event_id;
update state_events e set type = to_type from retyped r where r.event_id = e.event_id;
update current_state_events e set type = to_type from retyped r where r.event_id = e.event_id;
update current_state_delta_stream e set type = to_type from retyped r where r.event_id = e.event_id;
update state_groups_state e set type = to_type from retyped r where r.event_id = e.event_id;
insert into room_retention
  select e.room_id, e.event_id, (r.content ->> 'min_lifetime')::bigint, (r.content ->> 'max_lifetime')::bigint
  from retyped r join events e using (event_id) where to_type = 'm.room.retention';

-- Twenty days older than the rest.
update event_json j set json = pg_temp.patched(json, jsonb_build_object('origin_server_ts', e.origin_server_ts - 1728000000))
  from numbered n join events e using (event_id)
  where n.event_id = j.event_id and free and n.type = 'm.room.message' and n % 16 in (2, 6, 7);
update events e set origin_server_ts = (json::jsonb ->> 'origin_server_ts')::bigint
  from numbered n join event_json j using (event_id)
  where n.event_id = e.event_id and free and n.type = 'm.room.message' and n % 16 in (2, 6, 7);

-- Values that nobody knows.
update event_json j set json = pg_temp.patched(json, jsonb_build_object('content', json::jsonb -> 'content' || '{"membership": "bogus"}'))
  from numbered n where n.event_id = j.event_id and free and n.type = 'm.room.member' and n % 9 = 4;
update room_memberships m set membership = 'bogus'
  from numbered n where n.event_id = m.event_id and free and n % 9 = 4;
update current_state_events m set membership = 'bogus'
  from numbered n where n.event_id = m.event_id and n.type = 'm.room.member' and free and n % 9 = 4;
update local_current_membership m set membership = 'bogus'
  from numbered n where n.event_id = m.event_id and free and n % 9 = 4;
update event_json j set json = pg_temp.patched(json,
    jsonb_build_object('content', case n % 8 when 1 then '{"history_visibility": "Joined"}'::jsonb else '{"history_visibility": 7}' end))
  from numbered n where n.event_id = j.event_id and free and n.type = 'm.room.history_visibility' and n % 8 in (1, 5);

-- Redactions whose target cannot be redacted by them, or only after a second look.
create temporary table redaction as
  select e.event_id, e.room_id, e.sender, row_number() over (order by e.event_id)::int as n
  from retyped join events e using (event_id) where to_type = 'm.room.redaction';
create temporary table pointed as
  select r.event_id, r.n, case n % 8
      when 0 then (select min(e.event_id) from events e where e.room_id = r.room_id and e.type = 'm.room.create')
      when 1 then (select max(m.event_id) from numbered m where m.room_id <> r.room_id and m.type = 'm.room.message')
      when 2 then '$gone'
      when 3 then null
      when 4 then (select min(o.event_id) from redaction o where o.room_id = r.room_id and o.n % 8 in (0, 1, 2, 3))
      else (select e.event_id from events e join numbered using (event_id)
        where e.room_id = r.room_id and e.type = 'm.room.message' order by e.event_id offset r.n % 13 limit 1)
    end as redacts
  from redaction r;
update event_json j set json = pg_temp.patched(json, jsonb_build_object('redacts', redacts))
  from pointed p where p.event_id = j.event_id and redacts is not null;
insert into redactions (event_id, redacts, received_ts, recheck)
  select event_id, redacts, 0, true from pointed where redacts is not null;
-- Redactions that are gone themselves: one of an event that nobody else redacts, one of an event that another redacts, too.
insert into redactions (event_id, redacts, received_ts, recheck)
  select '$gone_redaction_1', (select min(event_id) from numbered where type = 'm.room.message'
      and event_id not in (select redacts from redactions where redacts is not null)), 0, false
  union all select '$gone_redaction_2', (select min(redacts) from pointed where n % 8 = 5), 0, true;
create temporary table foreigners as
  select redacts as event_id from pointed where n % 8 = 6 union select event_id from pointed where n % 16 = 7;
update event_json j set json = pg_temp.patched(json, '{"sender": "@stranger:elsewhere.example"}')
  from foreigners f where f.event_id = j.event_id;
update events e set sender = '@stranger:elsewhere.example' from foreigners f where f.event_id = e.event_id;
update event_json set internal_metadata = pg_temp.patched(internal_metadata, '{"recheck_redaction": true}')
  where event_id in (select event_id from pointed where n % 8 > 4)
    or event_id in (select event_id from numbered where type = 'm.room.redaction' and n % 2 = 0);

-- What the server thinks of them ----------------------------------------------------------------------------------------

create temporary table verdicts as
  select event_id, free, is_state, type, n, case type
      when 'm.room.message' then (array['spam', 'soft', 'not soft', 'rejected', 'rejected for nothing', 'outlier', 'lost'])[n % 50]
      when 'm.room.member' then (array['soft', 'rejected', 'outlier', 'lost', 'outlier', 'rejected'])[n % 45]
      when 'm.room.history_visibility' then (array['rejected', 'lost', 'soft', 'outlier'])[n % 25]
      when 'm.room.redaction' then (array['rejected', 'soft', 'outlier'])[n % 12]
      when 'm.room.join_rules' then (array['rejected', 'lost'])[n % 15]
      when 'm.call.invite' then (array['rejected', 'outlier'])[n % 20]
      else (array['soft', 'rejected', 'outlier', 'spam'])[n % 60]
    end as verdict
  from numbered
  -- one room at least that only the invited see, and somebody who knocks there
  where type <> 'm.room.history_visibility'
    or room_id not in (select room_id from room_memberships where membership = 'knock');
-- a target of its own for each way in which a redaction's target can be found wanting
insert into verdicts
  select redacts, null, null, null, null, (array['rejected', 'outlier', 'soft', 'lost'])[number % 9]
  from (select redacts, row_number() over (order by redacts) as number
    from redactions r join events e using (event_id) join events o on (o.event_id, o.room_id) = (r.redacts, e.room_id)
    group by redacts) as targets
  where number % 9 in (1, 2, 3, 4) and redacts in (select event_id from numbered where type <> 'm.room.create');

update event_json set internal_metadata = pg_temp.patched(internal_metadata, '{"soft_failed": true}')
  where event_id in (select event_id from verdicts where verdict in ('soft', 'spam'));
update event_json set internal_metadata = pg_temp.patched(internal_metadata, '{"policy_server_spammy": true}')
  where event_id in (select event_id from verdicts where verdict in ('spam', 'not soft'));
update event_json set internal_metadata = pg_temp.patched(internal_metadata, '{"soft_failed": false}')
  where event_id in (select event_id from verdicts where verdict = 'not soft');
insert into rejections select distinct event_id, 'auth_error', '0' from verdicts where verdict = 'rejected';
update events set rejection_reason = 'auth_error' where event_id in (select event_id from rejections);
insert into rejections select event_id, '', '0' from verdicts where verdict = 'rejected for nothing' on conflict do nothing;
-- whatever Synapse thought of their redactions once, it has to look again
update redactions set recheck = true where event_id in (select event_id from rejections);
update events set outlier = true where event_id in (select event_id from verdicts where verdict = 'outlier');
delete from event_to_state_groups where event_id in (select event_id from verdicts where verdict = 'outlier');
delete from event_json where event_id in (select event_id from verdicts where verdict = 'lost');

-- A format that its room's version does not have, none at all, a version that nobody knows, a room not joined completely.
update event_json set format_version = 1
  where event_id in (select event_id from numbered where not free and type = 'm.room.message' and n % 400 = 15);
update event_json set format_version = null
  where room_id = (select min(room_id) from rooms where room_version = '2');
update rooms set room_version = 'org.example.unknown'
  where room_id = (select min(room_id) from rooms where room_version = '7');
insert into partial_state_rooms (room_id) select min(room_id) from rooms where room_version = '9';
insert into partial_state_events (room_id, event_id)
  select room_id, event_id from events join partial_state_rooms using (room_id) where not outlier;

-- State that is not known (of a soft-failed event, too), and state that is nothing.
delete from event_to_state_groups
  where event_id in (select event_id from verdicts where not free and type = 'm.room.message' and n % 700 in (52, 60));
update event_to_state_groups set state_group = (select max(id) + 1000 from state_groups)
  where event_id in (select event_id from verdicts where not free and type = 'm.room.message' and n % 700 = 61);

-- What was replaced -----------------------------------------------------------------------------------------------------

create temporary table replacing as
  select event_id, type, json::jsonb #>> '{unsigned,replaces_state}' as replaced,
    row_number() over (partition by type order by event_id)::int as n
  from numbered join event_json using (event_id)
  where type in ('m.room.member', 'm.room.history_visibility') and json::jsonb #> '{unsigned,replaces_state}' is not null;
update event_json j set json = (json::jsonb #- '{unsigned,replaces_state}')::text
  from replacing r where r.event_id = j.event_id and n % 16 in (1, 2);
update event_json j set json = jsonb_set(json::jsonb, '{unsigned,replaces_state}', to_jsonb(case n % 16
    when 3 then '$gone'
    when 4 then (select min(m.event_id) from room_memberships m where m.membership = 'join' and m.room_id <> j.room_id)
    when 5 then (select min(h.event_id) from numbered h where h.type = 'm.room.history_visibility' and h.room_id = j.room_id)
    when 6 then (select min(event_id) from rejections)
    when 7 then (select min(event_id) from pointed where n % 8 = 2)
    else replaced end))::text
  from replacing r where r.event_id = j.event_id and n % 16 between 3 and 7;
-- as very old versions stored it
update event_json j set json = jsonb_set(json::jsonb, '{unsigned}', json::jsonb -> 'unsigned' || case n % 16 when 8
    then '{"prev_content": {"membership": "invite", "history_visibility": "world_readable"}, "prev_sender": "@old:synapse.example"}'::jsonb
    else '{"prev_content": {"membership": "join", "history_visibility": "invited"}}' end)::text
  from replacing r where r.event_id = j.event_id and n % 16 in (2, 8, 9);
-- purged
create temporary table purged as
  select replaced as event_id from replacing
  where n % 16 = 10 and replaced not in (select event_id from current_state_events)
    and replaced not in (select event_id from local_current_membership)
    and replaced not in (select event_id from event_forward_extremities)
    and replaced not in (select event_id from partial_state_events)
    and replaced not in (select membership_event_id from sliding_sync_membership_snapshots);
delete from event_edges where event_id in (select event_id from purged);
delete from event_auth where event_id in (select event_id from purged);
delete from state_events where event_id in (select event_id from purged);
delete from room_memberships where event_id in (select event_id from purged);
delete from event_to_state_groups where event_id in (select event_id from purged);
delete from event_json where event_id in (select event_id from purged);
delete from rejections where event_id in (select event_id from purged);
delete from events where event_id in (select event_id from purged);

-- Keys longer than most readers of JSON take, with and without something to escape in them.
update event_json j set json = pg_temp.patched(json, jsonb_build_object('content',
    json::jsonb -> 'content' || jsonb_build_object(case when n % 2 = 0 then repeat('k', 50001) else repeat('k"', 25001) end, 1)))
  from numbered n where n.event_id = j.event_id and free
    and (n.type in ('m.room.member', 'm.room.history_visibility', 'm.room.join_rules') and n % 5 = 2
      or n.type = 'm.room.message' and n % 16 in (4, 5) and n % 3 = 0);

-- Times and lifetimes at the ends of 64-bit integers --------------------------------------------------------------------

create temporary table far as
  select event_id, case row_number() over (order by event_id) when 1 then 9223372036854775807 else -9223372036854775808 end as ts
  from numbered where free and type = 'm.room.message' and n % 16 = 8 order by event_id limit 2;
update event_json j set json = pg_temp.patched(json, jsonb_build_object('origin_server_ts', ts))
  from far where far.event_id = j.event_id;
update events e set origin_server_ts = ts from far where far.event_id = e.event_id;
update room_retention set max_lifetime = 9223372036854775807
  where event_id = (select max(event_id) from room_retention where max_lifetime is not null);

-- Bans that redact: with and without an end, of an unknown and a rejected ban, of one in another room, of many redacted -----

create temporary table banned as
  select room_id, sender, array_agg(stream_ordering order by stream_ordering) as sent,
    row_number() over (order by count(*) filter (where type in ('m.room.member', 'm.room.history_visibility')) desc, room_id, sender)::int as n
  from events where not outlier group by room_id, sender order by n limit 12;
insert into room_ban_redactions
  select room_id, sender,
    case n when 4 then '$gone' when 5 then (select min(event_id) from rejections where reason <> '')
      when 6 then (select min(m.event_id) from room_memberships m where m.room_id <> banned.room_id)
      else (select max(event_id) from numbered m where m.type = 'm.room.member' and m.room_id = banned.room_id) end,
    case n when 2 then 0 when 3 then sent[1 + array_length(sent, 1) / 2] when 7 then sent[1] end
  from banned;

-- Rows of event_json that cannot be loaded, or that have flags of a wrong type ---------------------------------------------

create temporary table spoiled as
  select n.event_id, n.type, row_number() over (partition by n.type order by n.event_id)::int as n
  from numbered n join event_json j using (event_id)
  where free and n.event_id not in (select event_id from retyped)
    and n.event_id not in (select event_id from verdicts where verdict is not null)
    and n.event_id not in (select event_id from far) and n.event_id not in (select event_id from redaction)
    and n.type in ('m.room.message', 'm.room.member');
update event_json j set json = case n
    when 1 then replace(json, '"depth":', '"nothing": NaN, "depth":')
    when 2 then replace(json, '"depth":', '"nothing": -Infinity, "depth":')
    when 3 then '\x' || encode(convert_to(json, 'UTF8'), 'hex')
    when 4 then replace(json, '"depth":', '"nested": ' || repeat('[', 127) || repeat(']', 127) || ', "depth":')
    when 5 then replace(json, '"depth":', '"nested": ' || repeat('[', 126) || repeat(']', 126) || ', "depth":')
    when 6 then replace(json, '"depth":', '"depth": "5", "x":')
    when 7 then replace(json, '"content":', '"no content":')
    when 8 then replace(json, '"sender":', '"state_key": null, "sender":')
    when 9 then replace(json, '"depth":', '"half": "\ud800", "depth":')
    when 10 then left(json, length(json) / 2)
    when 11 then regexp_replace(json, '"event_id": ?"', '"event_id": "$of_another_')
    when 12 then replace(json, '"depth":', '"depth": 1e999, "x":')
    when 13 then replace(json, '"depth":', '"long": ' || repeat('7', 4000) || ', "depth":')
    when 14 then replace(json, '"origin_server_ts":', '"origin_server_ts": 1.5, "x":')
  end
  from spoiled s where s.event_id = j.event_id and s.type = 'm.room.message' and n <= 14;
update event_json j set internal_metadata = case n
    when 20 then '{"soft_failed": "true"}' when 21 then '{"soft_failed": 1, "policy_server_spammy": "true"}'
    when 22 then '{"soft_failed": false, "soft_failed": true}' when 23 then '{"soft_failed": true, "txn_id": 5}'
    when 24 then '{"stream_ordering":' when 25 then '' when 26 then '[1]' when 27 then '[ ]' when 28 then '-0.0e5'
    when 29 then '{"soft_failed": true, "a": NaN}' when 30 then '{"a": ' || repeat('7', 4301) || '}'
    when 31 then '{"txn_id": "' || repeat('7', 4301) || '"}'
  end
  from spoiled s where s.event_id = j.event_id and s.type = 'm.room.message' and n between 20 and 31;
update event_json j set internal_metadata = '{"stream_ordering":'
  from spoiled s where s.event_id = j.event_id and s.type = 'm.room.member' and n % 12 = 7;
-- Synapse takes these for unknown, so that they set no membership; where it raises, it answers nothing about the room.
update event_json j set json = case n % 3
    when 0 then replace(json, '"depth":', '"nothing": NaN, "depth":')
    when 1 then replace(json, '"depth":', '"depth": "5", "x":')
    else replace(json, '"depth":', '"nested": ' || repeat('[', 127) || repeat(']', 127) || ', "depth":') end
  from spoiled s where s.event_id = j.event_id and s.type = 'm.room.member' and n % 12 = 5;

-- Properties of rooms that are no text, or have a NUL ---------------------------------------------------------------------

create temporary table property as
  select c.event_id, c.type, row_number() over (partition by c.type order by c.event_id)::int as n
  from current_state_events c join numbered n using (event_id)
  where free and c.state_key = '' and c.type in ('m.room.create', 'm.room.canonical_alias', 'm.room.guest_access', 'm.room.encryption');
update event_json j set json = replace(pg_temp.patched(json, jsonb_build_object('content', json::jsonb -> 'content'
    || jsonb_build_object(
      case type when 'm.room.create' then 'type' when 'm.room.guest_access' then 'guest_access' when 'm.room.encryption' then 'algorithm'
        else 'alias' end,
      case n % 6 when 0 then '5'::jsonb when 1 then '{"a": 1}' when 2 then '["x"]' when 3 then 'true' when 4 then '"a@@b"' else '"plain"' end))),
    'a@@b', 'a\u0000b')
  from property p where p.event_id = j.event_id;
