-- Bronze tables from the numbers of bench.visibility.synthetic_rooms in `fresh`, `fresh_groups` and `fresh_rows`.
-- `local_members` contains each room's number of local members, local_users() is the number of local users. The room
-- version is 2, whose events contain their IDs; the IDs of later versions are hashes.
create or replace macro event_id(n) as '$' || md5('e' || n) || substr(md5('f' || n), 1, 11);
create or replace macro reference(n) as '["' || event_id(n) || '",{"sha256":"' || substr(md5('h' || n) || md5('i' || n), 1, 43) || '"}]';
create or replace macro room_name(r) as '!' || substr(md5('r' || r), 1, 18) || ':bench.example';
create or replace macro sent_at(n) as 1700000000000 + n * 1000;
create or replace macro user_name(room, member, local_count) as
    case when member < local_count then '@user' || ((room * 7919 + member) % local_users()) || ':bench.example'
    else '@user' || member || '_' || room || ':remote' || (member % 97) || '.example' end;
create or replace macro type_of(key) as
    ['m.room.create', 'm.room.power_levels', 'm.room.join_rules', 'm.room.history_visibility', 'm.room.topic',
        'm.room.member'][least(key, 5) + 1];
create or replace macro state_key_of(room, key, local_count) as case when key >= 5 then user_name(room, key - 5, local_count) else '' end;

create or replace temp table generated_events as
select
    n,
    event_id(n) as event_id,
    room_name(room) as room_id,
    case when key >= 0 then type_of(key)
        when is_redaction then 'm.room.redaction'
        when n % 1000 = 7 then 'm.call.invite'
        else 'm.room.message' end as type,
    case when key >= 0 then state_key_of(room, key, local_count) end as state_key,
    user_name(room, sender, local_count) as sender,
    nullif("group", -1) as state_group,
    case when replaces >= 0 then event_id(replaces) end as replaces,
    case when is_redaction then event_id(about) end as redacts,
    case when key >= 5 then ['join', 'join', 'leave', 'invite'][turn % 4 + 1] end as membership,
    case
        when key = 0 then '"room_version":"2"'
        when key = 2 then '"join_rule":"' || ['invite', 'public', 'invite', 'knock'][turn % 4 + 1] || '"'
        when key = 3 then '"history_visibility":"'
            || ['shared', 'joined', 'world_readable', 'shared', 'invited'][(turn + room) % 5 + 1] || '"'
        when key >= 5 then '"displayname":"User ' || turn || '","membership":"' || membership || '"'
        else '"msgtype":"m.text","body":"' || repeat(substr(md5('b' || n), 1, 12) || ' ', 1 + cast(n % 9 as int)) || '"'
    end as content
from (
    select *, key < 0 and n % 100 = 3 and about >= 0 and "group" >= 0 as is_redaction
    from fresh inner join local_members using (room)
)
order by n;

create or replace temp view events as
select event_id, room_id, type, state_key, sender, n + 1 as stream_ordering, n + 1 as topological_ordering, n + 1 as depth,
    sent_at(n) as origin_server_ts, sent_at(n) as received_ts, true as processed, state_group is null as outlier,
    false as contains_url, 'master' as instance_name
from generated_events;

create or replace temp view event_json as
select event_id, room_id, 1 as format_version,
    case when n % 1000 = 11 then '{"soft_failed":true}' else '{"token_id":null}' end as internal_metadata,
    '{"auth_events":[' || reference(n - 1) || ',' || reference(n - 2) || '],"content":{' || content || '},"depth":' || n
    || ',"event_id":"' || event_id || '","hashes":{"sha256":"' || substr(md5('h' || n) || md5('i' || n), 1, 43) || '"},"origin_server_ts":' || sent_at(n)
    || ',"prev_events":[' || reference(n - 1) || '],"room_id":"' || room_id || '","sender":"' || sender
    || '","signatures":{"bench.example":{"ed25519:a":"' || md5('s' || n) || md5('t' || n) || substr(md5('u' || n), 1, 22)
    || '"}}' || coalesce(',"state_key":"' || state_key || '"', '') || coalesce(',"redacts":"' || redacts || '"', '')
    || ',"type":"' || type || '","unsigned":{"age_ts":' || sent_at(n)
    || coalesce(',"replaces_state":"' || replaces || '"', '') || '}}' as json
from generated_events;

create or replace temp view event_to_state_groups as
select event_id, state_group from generated_events where state_group is not null;

create or replace temp view rejections as
select event_id, 'auth_error' as reason, '0' as last_check from generated_events where n % 10000 = 17;

create or replace temp view redactions as
select event_id, redacts, false as have_censored, sent_at(n) as received_ts, false as recheck from generated_events where redacts is not null;

create or replace temp view room_memberships as
select event_id, room_id, state_key as user_id, sender, membership, 0 as forgotten, n + 1 as event_stream_ordering
from generated_events where membership is not null;

create or replace temp view rooms as
select room_id, false as is_public, sender as creator, '2' as room_version, true as has_auth_chain_index
from generated_events where type = 'm.room.create';

create or replace temp view state_groups as
select id, room_name(room) as room_id, event_id(event) as event_id from fresh_groups;

create or replace temp view state_group_edges as
select id as state_group, prev as prev_state_group from fresh_groups where prev > 0;

create or replace temp view state_groups_state as
select "group" as state_group, room_name(room) as room_id, type_of(key) as type, state_key_of(room, key, local_count) as state_key,
    event_id(event) as event_id
from fresh_rows inner join local_members using (room);

create or replace temp view users as
select '@user' || i || ':bench.example' as name, 1700000000 as creation_ts, 0 as admin, 0 as deactivated
from range(local_users()) as t(i);

create or replace temp view ignored_users as
select '@user' || i || ':bench.example' as ignorer_user_id,
    '@user' || ((i * 31) % local_users()) || ':bench.example' as ignored_user_id
from range(0, local_users(), 10) as t(i);

create or replace temp view erased_users as
select '@user' || i || ':bench.example' as user_id from range(1, local_users(), 500) as t(i);
