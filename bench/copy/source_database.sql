-- Rows in the shape that Synapse gives them, each a function of its number alone: any range can be made at any time.

create schema bench;

create function bench.uniform(number bigint, seed int) returns float8 immutable language sql
return (hashint8extended(number, seed) & 1048575) / 1048576.0::float8;

create function bench.hash(name text) returns text immutable language sql
return translate(rtrim(encode(sha256(name::bytea), 'base64'), '='), '+/', '-_');

create function bench.room_id(room bigint) returns text immutable language sql
return '!' || substr(translate(encode(sha256(('room ' || room)::bytea), 'base64'), '+/=', 'xyz'), 1, 18) || ':bench.example';

create function bench.words(number bigint, many int) returns text stable language sql as $$
  select string_agg(lexicon.words[1 + floor(cardinality(lexicon.words) * bench.uniform(number * 64 + place, 7) ^ 2)::int], ' ')
  from generate_series(1, many) place, (select string_to_array(
    'the to and a of in is it you that I for on not we this be have was with are but at so if just as or can there do '
    'what all they like will about out get up one would from think know now time when your some my then how which see '
    'no good yes people still make need work new over want more only has here well could should had also because back '
    'them right thing were why their been really way than use something going last other who any even after today into '
    'tomorrow meeting server message room question problem please thanks maybe release version update sure look same '
    'first point much every let though read before week wrong issue might already keep better found around always '
    'anyone understand never great wait nothing happened another does until without enough probably later remember '
    'actually quite morning between network address different someone together everything database evening weekend '
    'federation upgrade configuration documentation performance available interesting unfortunately', ' ') as words) lexicon
$$;

-- What the columns of events and of event_json say alike about the events with the numbers first to last.
create function bench.events(first bigint, last bigint, rooms int)
returns table (number bigint, event_id text, room bigint, room_id text, sender text, type text, depth bigint, sent bigint)
immutable language sql as $$
  select number, '$' || bench.hash('event ' || number), room, bench.room_id(room),
    '@user' || floor(rooms * 4 * bench.uniform(number, 2) ^ 2)::bigint || ':bench.example',
    case when kind < 0.62 then 'm.room.message' when kind < 0.74 then 'm.room.encrypted'
      when kind < 0.86 then 'm.room.member' else 'm.reaction' end,
    2 + number / rooms, 1767225600000 + number * 211 + floor(200 * bench.uniform(number, 4))::bigint
  from (
    select number, floor(rooms * bench.uniform(number, 1) ^ 2)::bigint as room, bench.uniform(number, 3) as kind
    from generate_series(first, last) number
  ) drawn
$$;

create function bench.content(number bigint, type text, sender text) returns text stable language sql as $$
  select case type
    when 'm.room.message' then format(
      '{"body":"%s","m.mentions":{},"msgtype":"m.text"}', bench.words(number, 4 + floor(70 * bench.uniform(number, 5) ^ 3)::int))
    when 'm.room.encrypted' then format(
      '{"algorithm":"m.megolm.v1.aes-sha2","ciphertext":"%s%s%s%s","device_id":"%s","sender_key":"%s","session_id":"%s"}',
      bench.hash('cipher a' || number), bench.hash('cipher b' || number), bench.hash('cipher c' || number),
      bench.hash('cipher d' || number), upper(substr(md5(sender), 1, 10)), bench.hash('key ' || sender),
      bench.hash('session ' || sender || number / 50000))
    when 'm.room.member' then format(
      '{"avatar_url":"mxc://bench.example/%s","displayname":"%s","membership":"%s"}', substr(bench.hash(sender), 1, 24),
      initcap(bench.words(hashtextextended(sender, 0) / 128, 2)), case when number % 3 = 0 then 'leave' else 'join' end)
    else format(
      '{"m.relates_to":{"event_id":"$%s","key":"%s","rel_type":"m.annotation"}}', bench.hash('event ' || number - 3),
      (array['👍','🎉','❤️','😄'])[1 + number % 4]) end
$$;

-- The events with the numbers first to last; the number is the stream_ordering.
create procedure bench.add_events(first bigint, last bigint, rooms int) language sql as $$
  insert into events (topological_ordering, event_id, type, room_id, processed, outlier, depth, origin_server_ts,
    received_ts, sender, contains_url, instance_name, stream_ordering, state_key)
  select depth, event_id, type, room_id, true, bench.uniform(number, 6) < 0.03, depth, sent, sent + 80 + number % 700,
    sender, false, 'persister' || 1 + room % 2, number, case when type = 'm.room.member' then sender end
  from bench.events(first, last, rooms)
$$;

create procedure bench.add_event_json(first bigint, last bigint, rooms int) language sql as $$
  insert into event_json (event_id, room_id, internal_metadata, json, format_version)
  select event_id, room_id,
    case when number % 3 = 0 then '{}' else format('{"device_id":"%s","txn_id":"m%s.%s"}',
      upper(substr(md5(sender), 1, 10)), sent, number % 50) end,
    format(
      '{"signatures":{"bench.example":{"ed25519:a_mTfk":"%s%s"}},"unsigned":{"age_ts":%s},"room_id":"%s","auth_events":'
      '["$%s","$%s","$%s"],"prev_events":["$%s"],"content":%s,"depth":%s,"hashes":{"sha256":"%s"},'
      '"origin":"bench.example","origin_server_ts":%s,"sender":"%s",%s"type":"%s"}',
      bench.hash('signature ' || number), bench.hash('more signature ' || number), sent, room_id,
      bench.hash('create ' || room), bench.hash('power ' || room), bench.hash('member ' || room || sender),
      bench.hash('event ' || number - 1), bench.content(number, type, sender), depth, bench.hash('hash ' || number), sent,
      sender, case when type = 'm.room.member' then '"state_key":"' || sender || '",' else '' end, type),
    3
  from bench.events(first, last, rooms)
$$;

-- State as Synapse stores it, in blocks of a hundred groups: the first holds a room's whole state, the others a change.
-- A block has 304 rows on average.
create procedure bench.add_state(first bigint, last bigint, rooms int) language sql as $$
  insert into state_groups_state (state_group, room_id, type, state_key, event_id)
  select block * 100 + greatest(place - members, 0), bench.room_id(room),
    case when power_levels then 'm.room.power_levels' else 'm.room.member' end,
    case when power_levels then '' else '@user' || room * 13 + member || ':bench.example' end,
    '$' || bench.hash('state ' || room || ' ' || member || case when place > members then ' ' || block else '' end)
  from (select *, 10 + floor(780 * bench.uniform(room, 12) ^ 3)::int as members
    from (select block, floor(rooms * bench.uniform(block, 11) ^ 2)::bigint as room
      from generate_series(first, last) block) blocks) rooms
  cross join lateral (select place, place = 1 or place > members and place % 25 = 7 as power_levels,
    case when place <= members then place else floor(members * bench.uniform(block * 1024 + place, 13))::int end as member
    from generate_series(1, members + 99) place) places
$$;

-- Change every step-th event from the first on as a purge and a redaction do: it becomes an outlier, its JSON is rewritten.
create procedure bench.change_events(first bigint, last bigint, step bigint) language sql as $$
  update events set outlier = not outlier
  where event_id in (select '$' || bench.hash('event ' || number) from generate_series(first, last, step) number)
$$;

create procedure bench.change_event_json(first bigint, last bigint, step bigint) language sql as $$
  update event_json set internal_metadata = '{"redacted":true}', json = replace(json, '"body"', '"was"')
  where event_id in (select '$' || bench.hash('event ' || number) from generate_series(first, last, step) number)
$$;
