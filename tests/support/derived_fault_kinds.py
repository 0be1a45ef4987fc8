"""Kinds of faults in values that Synapse derives from other rows: memberships, sliding sync and statistics."""

from typing import Final

from tests.support.fault_kinds import CURRENT_MEMBERS, JOINED_ROOMS, PAST_MEMBERSHIPS, Kind

_PROPERTIES: Final = """
select room_id, room_id as id, '' as other from room_stats_state
join room_stats_current using (room_id) join current_state_events using (room_id)
where type = 'm.room.join_rules' and state_key = ''"""


def _sliding_sync(change: str) -> Kind:
    statement = f"update sliding_sync_joined_rooms set {change} where room_id = %(id)s"
    return Kind("sliding_sync_outdated", JOINED_ROOMS, (statement,), "sliding_sync_joined_rooms", "sliding sync")


KINDS: Final = {
    "current state has no membership": Kind(
        "copied_value_differs",
        CURRENT_MEMBERS,
        ("update current_state_events set membership = null where event_id = %(id)s",),
    ),
    "a past membership is another one": Kind(
        "copied_value_differs",
        PAST_MEMBERSHIPS,
        (
            """update room_memberships set membership = case membership when 'join' then 'leave' else 'join' end
               where event_id = %(id)s""",
        ),
    ),
    "sliding sync sees an event of another room": _sliding_sync(
        "event_stream_ordering = (select max(stream_ordering) from events where room_id <> %(id)s"
        " and stream_ordering not in (select event_stream_ordering from sliding_sync_joined_rooms))"
    ),
    "sliding sync is ahead of all rooms": _sliding_sync(
        "event_stream_ordering = (select 1000000 + max(event_stream_ordering) from sliding_sync_joined_rooms)"
    ),
    "sliding sync has a later bump stamp": _sliding_sync("bump_stamp = event_stream_ordering + 1"),
    "a room has another join rule": Kind(
        "room_statistics",
        _PROPERTIES,
        ("update room_stats_state set join_rules = 'other' where room_id = %(id)s",),
        "join_rules",
        "statistics",
    ),
}
