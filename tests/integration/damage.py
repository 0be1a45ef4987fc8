"""Faults for a copy of Synapse's database, by the check of ``gold.state_integrity`` that must find them.

Each statement returns the subjects that the check must report.
"""

from typing import Any, Final

import psycopg

CALM_ROOM: Final = "(select min(room_id) from room_stats_current where joined_members > 1)"
"""A room with members, for artificial state groups."""

_MESSAGE: Final = """
(select event_id from events where type = 'm.room.message' and not outlier and rejection_reason is null
 order by event_id offset {number} limit 1)
"""

_WHERE_MESSAGE: Final = "where event_id = " + _MESSAGE

_PAST_MEMBERSHIP: Final = """
(select {order}(event_id) from room_memberships where event_id not in (select event_id from current_state_events)
 and event_id not in (select event_id from local_current_membership))
"""

FAULT_STATEMENTS: Final[dict[str, str]] = {
    "state_reset": """
        update current_state_events set event_id = former.event_id, event_stream_ordering = former.stream_ordering
        from (
            select now.event_id as latest, former.event_id, former.stream_ordering from current_state_events as now
            join current_state_delta_stream as deltas on deltas.event_id = now.event_id
            join events as former on former.event_id = deltas.prev_event_id
            where now.type = 'm.room.topic' order by 1 limit 1) as former
        where current_state_events.event_id = former.latest returning type || ' ' || state_key""",
    "current_state_differs": f"""
        with reset as (
            select now.room_id, now.type, now.state_key, former.event_id, former.stream_ordering
            from current_state_events as now
            join current_state_delta_stream as deltas using (room_id, event_id)
            join events as former on former.event_id = deltas.prev_event_id
            where now.type = 'm.room.join_rules' and now.room_id <> {CALM_ROOM} order by 1 limit 1),
        changed as (
            insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id)
            select 900000000, room_id, type, state_key, event_id from reset)
        update current_state_events as now set event_id = reset.event_id, event_stream_ordering = reset.stream_ordering
        from reset where (now.room_id, now.type, now.state_key) = (reset.room_id, reset.type, reset.state_key)
        returning now.type || ' ' || now.state_key""",
    "local_membership_differs": """
        delete from local_current_membership where event_id = (
            select max(event_id) from local_current_membership
            where event_id in (select event_id from current_state_events))
        returning user_id""",
    "sliding_sync_outdated": """
        update sliding_sync_membership_snapshots set sender = '@nobody:here' where membership_event_id = (
            select min(membership_event_id) from sliding_sync_membership_snapshots)
        returning 'sliding_sync_membership_snapshots ' || user_id""",
    "event_missing": """
        update current_state_events set event_id = '$nowhere'
        where event_id = (select max(event_id) from current_state_events where type = 'm.room.name')
        returning event_id""",
    "event_incomplete": f"""
        delete from room_memberships where event_id = {_PAST_MEMBERSHIP.format(order="min")} returning event_id""",
    "copied_value_differs": f"""
        update room_memberships set sender = '@nobody:nowhere' where event_id = {_PAST_MEMBERSHIP.format(order="max")}
        returning event_id""",
    "room_missing": f"""
        insert into local_current_membership (room_id, user_id, event_id, membership)
        select '!nowhere', user_id, event_id, membership from room_memberships
        where event_id = {_PAST_MEMBERSHIP.format(order="max")} returning room_id""",
    "room_without_extremity": """
        delete from event_forward_extremities
        where room_id = (select max(room_id) from event_forward_extremities) returning room_id""",
    "partial_state_without_room": f"""
        insert into partial_state_events (room_id, event_id)
        select room_id, event_id from events {_WHERE_MESSAGE.format(number=5)} returning room_id""",
    "stray_room_rows": """
        insert into room_aliases (room_alias, room_id) values ('#nowhere:here', '!purged:here') returning room_id""",
    "event_without_json": f"delete from event_json {_WHERE_MESSAGE.format(number=0)} returning event_id",
    "event_lost": """
        with lost as (
            select event_id, room_id from events where type = 'm.room.message' and not outlier and room_id in (
                select room_id from events where type = 'm.room.message' group by room_id having count(*) > 9)
            and stream_ordering not in (select event_stream_ordering from sliding_sync_joined_rooms)
            and event_id not in (select event_id from event_forward_extremities)
            order by stream_ordering offset 20 limit 1),
        edges as (delete from event_edges where event_id in (select event_id from lost))
        delete from events where event_id in (select event_id from lost) returning event_id""",
    "json_without_event": """
        insert into event_json (event_id, room_id, internal_metadata, json, format_version)
        select '$orphan', room_id, '{}', '{}', 3 from rooms limit 1 returning event_id""",
    "event_altered": f"""
        update event_json set json = replace(json, '"msgtype"', '"m_type"') {_WHERE_MESSAGE.format(number=3)}
        returning event_id""",
    "unreadable_value": """
        update receipts_linearized set data = '\\x7b227473223a317d'
        where stream_id = (select min(stream_id) from receipts_linearized)
        returning 'receipts_linearized.data ' || concat_ws(' ', receipt_type, user_id, thread_id)""",
    "event_unloadable": f"""
        update event_json set internal_metadata = '{{"soft_failed":' {_WHERE_MESSAGE.format(number=4)}
        returning event_id""",
    "event_without_state_group": f"""
        delete from event_to_state_groups {_WHERE_MESSAGE.format(number=1)} returning event_id""",
    "stray_event_rows": """
        insert into event_to_state_groups select '$nobody', min(state_group) from event_to_state_groups
        returning event_id""",
    "state_group_missing": f"""
        update event_to_state_groups set state_group = 900000000 {_WHERE_MESSAGE.format(number=2)}
        returning state_group::text""",
    "state_group_incomplete": """
        with lost as (
            select min(event_id) as event_id from current_state_events where type = 'm.room.join_rules'
            union all
            select min(event_id) from state_events where type = 'm.room.guest_access'
                and event_id in (select event_id from event_to_state_groups))
        delete from state_groups_state using lost where state_groups_state.event_id = lost.event_id
        returning lost.event_id""",
    "state_row_repeated": f"""
        with made as (insert into state_groups (id, room_id, event_id) values (900000070, {CALM_ROOM}, '$'))
        insert into state_groups_state
        select 900000070, {CALM_ROOM}, 'm.room.topic', '', unnest(array['$one', '$other'])
        returning '900000070 m.room.topic '""",
    "state_group_without_creation": """
        with moved as (
            select event_id, room_id from events join event_to_state_groups using (event_id)
            where type = 'm.room.message' and not outlier and rejection_reason is null
            and event_id not in (select event_id from event_forward_extremities) order by event_id desc limit 1),
        made as (insert into state_groups (id, room_id, event_id) select 900000060, room_id, event_id from moved),
        stated as (insert into state_groups_state select 900000060, room_id, 'm.room.topic', '', event_id from moved)
        update event_to_state_groups set state_group = 900000060 from moved
        where event_to_state_groups.event_id = moved.event_id returning state_group::text""",
    "state_not_of_previous_event": "select event_id from event_to_state_groups where state_group = 900000060",
    "stray_state_rows": f"""
        insert into state_groups_state values (900000001, {CALM_ROOM}, 'm.room.topic', '', '$topic')
        returning state_group::text""",
    "state_group_cycle": f"""
        with made as (insert into state_groups (id, room_id, event_id)
            select id, {CALM_ROOM}, '$' || id from generate_series(900000010, 900000011) as id)
        insert into state_group_edges values (900000011, 900000010), (900000010, 900000011)
        returning state_group::text""",
    "state_group_missing_predecessor": f"""
        with made as (insert into state_groups (id, room_id, event_id) values (900000020, {CALM_ROOM}, '$'))
        insert into state_group_edges values (900000020, 900000019) returning state_group::text""",
    "state_group_other_room": f"""
        with made as (insert into state_groups (id, room_id, event_id) values (900000030, {CALM_ROOM}, '$'))
        insert into state_group_edges select 900000030, max(id) from state_groups
        where room_id <> {CALM_ROOM} and id < 900000000
        returning state_group::text""",
    "state_group_several_predecessors": f"""
        with made as (insert into state_groups (id, room_id, event_id) values (900000040, {CALM_ROOM}, '$'))
        insert into state_group_edges select 900000040, unnest(array[min(id), max(id)]) from state_groups
        where room_id = {CALM_ROOM} and id < 900000000 returning state_group::text""",
    "state_group_newer_predecessor": f"""
        with made as (insert into state_groups (id, room_id, event_id)
            values (900000050, {CALM_ROOM}, '$'), (900000051, {CALM_ROOM}, '$'))
        insert into state_group_edges values (900000050, 900000051) returning state_group::text""",
    "state_chain_too_long": f"""
        with made as (insert into state_groups (id, room_id, event_id)
            select id, {CALM_ROOM}, '$' from generate_series(900000100, 900000300) as id),
        edges as (insert into state_group_edges select id, id - 1 from generate_series(900000101, 900000300) as id)
        select '900000300'""",
    "room_statistics": f"""
        update room_stats_current set joined_members = joined_members + 1 where room_id = {CALM_ROOM}
        returning 'joined_members'""",
    "forward_extremities": f"""
        insert into event_forward_extremities (event_id, room_id)
        select event_id, room_id from events where room_id = {CALM_ROOM} order by stream_ordering limit 21
        on conflict do nothing returning room_id""",
    "retention_overdue": """
        with quiet as (
            select room_id, min(event_id) filter (where type = 'm.room.create') as creation,
                   (array_agg(event_id order by received_ts) filter (where type = 'm.room.message'))[1] as oldest
            from events group by room_id having count(*) filter (where type = 'm.room.message') > 9
            order by room_id desc limit 1),
        made as (insert into room_retention (room_id, event_id, max_lifetime) select room_id, creation, 1 from quiet)
        select oldest from quiet""",
}

CONSEQUENCES: Final = {
    ("state_group_newer_predecessor", "900000010"),
    ("sliding_sync_outdated", "sliding_sync_membership_snapshots @grace:synapse.example"),
}
"""Further findings: a group of the cycle has a newer predecessor, and sliding sync contains memberships too."""

FOLLOWING_CHECK: Final = "state_not_of_previous_event"
"""The check that also finds the events after a planted fault."""


def plant(connection: psycopg.Connection[Any]) -> set[tuple[str, str]]:
    """Plant all faults, and return the expected findings: check and subject."""
    connection.execute("set session_replication_role = replica")  # disables foreign keys, as a broken index does
    return {
        (check, subject) for check, sql in FAULT_STATEMENTS.items() for (subject,) in connection.execute(sql.encode())
    }
