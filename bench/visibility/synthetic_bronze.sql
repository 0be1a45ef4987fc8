-- Bronze tables from the numbers of bench.visibility.synthetic_rooms in `fresh`, `fresh_groups` and `fresh_rows`.
-- `local_members` contains each room's number of local members and its creation, local_users() is the number of local users.
-- `schema_changes` contains the files of the schema changes of Synapse's newest release.
-- `current_events` marks the events that belong to the present of their rooms. The room
-- version is 2, whose events contain their IDs; the IDs of later versions are hashes.
create or replace macro event_id(n) as '$' || md5('e' || n) || substr(md5('f' || n), 1, 11);
create or replace macro reference(id) as '["' || id || '",{"sha256":"' || substr(md5('h' || id) || md5('i' || id), 1, 43) || '"}]';
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
    case when previous >= 0 then event_id(previous) end as previous,
    case when merged >= 0 then event_id(merged) end as merged,
    creation,
    key,
    key >= 5 and key - 5 < local_count as is_local_member,
    case when is_redaction then event_id(about) end as redacts,
    case when key >= 5 then ['join', 'join', 'leave', 'invite'][turn % 4 + 1] end as membership,
    case
        when key = 0 then '"room_version":"2"'
        when key = 2 then '"join_rule":"' || ['invite', 'public', 'invite', 'knock'][turn % 4 + 1] || '"'
        when key = 3 then '"history_visibility":"'
            || ['shared', 'joined', 'world_readable', 'shared', 'invited'][(turn + room) % 5 + 1] || '"'
        when key >= 5 then '"displayname":"User ' || turn || '","membership":"' || membership || '"'
        else '"body":"' || repeat(substr(md5('b' || n), 1, 12) || ' ', 1 + cast(n % 9 as int)) || '","msgtype":"m.text"'
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

-- In canonical form, without `}`; hashes, signatures and unsigned are not hashed.
create or replace temp view hashed_json as
select *,
    '{"auth_events":[' || case
        when key is null then concat_ws(',', reference(event_id(n - 1)), reference(event_id(n - 2)))
        else concat_ws(',', case when key > 0 then reference(event_id(creation)) end, reference(replaces))
    end || '],"content":{' || content || '},"depth":' || n
    || ',"event_id":"' || event_id || '","origin_server_ts":' || sent_at(n) || ',"prev_events":[' || reference(event_id(n - 1)) || ']'
    || coalesce(',"redacts":"' || redacts || '"', '') || ',"room_id":"' || room_id || '","sender":"' || sender || '"'
    || coalesce(',"state_key":"' || state_key || '"', '') || ',"type":"' || type || '"' as hashed
from generated_events;

create or replace temp view event_json as
select event_id, room_id, 1 as format_version,
    case when n % 1000 = 11 then '{"soft_failed":true}' else '{"token_id":null}' end as internal_metadata,
    hashed || ',"hashes":{"sha256":"' || rtrim(to_base64(unhex(sha256(hashed || '}'))), '=')
    || '"},"signatures":{"bench.example":{"ed25519:a":"' || md5('s' || n) || md5('t' || n) || substr(md5('u' || n), 1, 22)
    || '"}},"unsigned":{"age_ts":' || sent_at(n) || coalesce(',"replaces_state":"' || replaces || '"', '') || '}}' as json
from hashed_json;

create or replace temp view event_to_state_groups as
select event_id, state_group from generated_events where state_group is not null;

create or replace temp view rejections as
select event_id, 'auth_error' as reason, '0' as last_check from generated_events where n % 10000 = 17 and key < 0;

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

-- Some rules of visibility apply only if the schema change of their release was applied.
create or replace temp view applied_schema_deltas as
select split_part(file, '/', 1)::int as version, file from schema_changes;

create or replace temp view event_edges as
select event_id, previous as prev_event_id from generated_events where previous is not null
union all
select event_id, merged from generated_events where merged is not null;

create or replace temp view event_auth as
select event_id, event_id(creation) as auth_id, room_id from generated_events where key > 0
union all
select event_id, replaces, room_id from generated_events where replaces is not null;

create or replace temp view state_events as
select event_id, room_id, type, state_key from generated_events where key >= 0;

-- The room's first state is added with its creation.
create or replace temp view current_state_delta_stream as
select greatest(n, creation) + 1 as stream_id, room_id, type, state_key, event_id, replaces as prev_event_id, 'master' as instance_name
from generated_events where key >= 0;

create or replace temp view current_state_events as
select room_id, type, state_key, event_id, membership, n + 1 as event_stream_ordering
from generated_events inner join current_events using (n) where is_state;

create or replace temp view event_forward_extremities as
select event_id, room_id from generated_events inner join current_events using (n) where is_extremity;

create or replace temp view local_current_membership as
select state_key as user_id, room_id, event_id, membership, n + 1 as event_stream_ordering
from generated_events inner join current_events using (n) where is_state and is_local_member;

create or replace temp view room_stats_current as
select room_id, count(*) as current_state_events,
    count(*) filter (where membership = 'join') as joined_members,
    count(*) filter (where membership = 'invite') as invited_members,
    count(*) filter (where membership = 'leave') as left_members,
    0 as banned_members, 0 as knocked_members,
    count(*) filter (where membership = 'join' and is_local_member) as local_users_in_room,
    max(greatest(n, creation)) + 1 as completed_delta_stream_id
from generated_events inner join current_events using (n) where is_state group by room_id;

create or replace temp view sliding_sync_joined_rooms as
select room_id, n + 1 as event_stream_ordering, false as is_encrypted
from generated_events inner join current_events using (n) where is_last;

create or replace temp view sliding_sync_membership_snapshots as
select room_id, state_key as user_id, sender, event_id as membership_event_id, membership, 0 as forgotten, n + 1 as event_stream_ordering
from generated_events inner join current_events using (n) where is_state and is_local_member;
