"""Kinds of faults of single rows in Synapse's tables, each with the finding that it must cause."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    :ivar check: name of the check that must report the fault.
    :ivar pick: query that returns candidates, with the columns ``room_id``, ``id`` and ``other``.
    :ivar change: statements with parameters such as ``%(id)s``, one for each column of ``pick``.
    :ivar subject: format of the finding's subject, with the columns of ``pick``.
    :ivar area: two faults with the same ID and area exclude each other.
    :ivar hides: a name. In the same room, this fault hides the faults whose ``hidden_by`` is that name.
    """

    check: str
    pick: str
    change: tuple[str, ...]
    subject: str = "{id}"
    area: str = ""
    hides: str = ""
    hidden_by: str = ""


_MESSAGES: Final = """
select room_id, event_id as id, event_id as other from events where type = 'm.room.message' and not outlier
and rejection_reason is null and event_id not in (select event_id from event_forward_extremities)
and event_id not in (select event_id from event_relations)
and event_id not in (select relates_to_id from event_relations)
and event_id in (select prev_event_id from event_edges join events using (event_id) where not outlier)
and stream_ordering not in (select event_stream_ordering from sliding_sync_joined_rooms)"""
PAST_MEMBERSHIPS: Final = """
select room_id, event_id as id, event_id as other from room_memberships
where event_id not in (select event_id from current_state_events)
and event_id not in (select event_id from local_current_membership)"""
_PAST_STATE: Final = """
select room_id, event_id as id, event_id as other from state_events where type not in ('m.room.member', 'm.room.create')
and event_id not in (select event_id from current_state_events)"""
_REPLACED: Final = """
select now.room_id, now.event_id as id, former.event_id as other, former.stream_ordering as ordering,
       now.type || ' ' || now.state_key as piece
from current_state_events as now
join current_state_delta_stream as deltas using (room_id, event_id)
join events as former on former.event_id = deltas.prev_event_id
where now.type not like 'm.room.member' and now.type not in ('m.room.encryption', 'm.room.tombstone')"""
_UNREPLACED: Final = """
select now.room_id, now.event_id as id, now.event_id as other, now.type || ' ' || now.state_key as piece
from current_state_events as now join current_state_delta_stream as deltas using (room_id, event_id)
where deltas.prev_event_id is null and now.type in ('m.room.join_rules', 'm.room.power_levels', 'm.room.name',
    'm.room.history_visibility', 'm.room.guest_access')"""
_FORMER_MEMBERSHIPS: Final = """
select now.room_id, now.user_id as id, former.event_id as other, former.event_stream_ordering as ordering,
       former.membership, now.event_id as latest
from local_current_membership as now
join room_memberships as former on former.user_id = now.user_id and former.room_id = now.room_id
where former.event_id <> now.event_id and now.room_id in (select room_id from current_state_events)"""
JOINED_ROOMS: Final = """
select room_id, room_id as id, min(stream_ordering)::text as other from events
where room_id in (select room_id from sliding_sync_joined_rooms) and stream_ordering > 0
group by room_id having count(*) > 3"""
CURRENT_MEMBERS: Final = """
select room_id, event_id as id, event_id as other
from current_state_events join room_memberships using (event_id, room_id)
where current_state_events.membership = 'join'"""
_SET_CURRENT: Final = """
update current_state_events set event_id = %(other)s, event_stream_ordering = %(ordering)s where event_id = %(id)s"""
_DELETE_EVENT: Final = tuple(
    f"delete from {table} where event_id = %(id)s"
    for table in ("events", "event_json", "event_to_state_groups", "event_edges")
)

KINDS: Final = {
    "a past membership is deleted": Kind(
        "event_incomplete", PAST_MEMBERSHIPS, ("delete from room_memberships where event_id = %(id)s",)
    ),
    "the edges of an event are cut": Kind(
        "event_incomplete", _MESSAGES, ("delete from event_edges where event_id = %(id)s",)
    ),
    "one edge of several is cut": Kind(
        "event_incomplete",
        f"select * from ({_MESSAGES}) as messages where (select count(*) from event_edges where event_id = id) > 1",
        (
            "delete from event_edges where event_id = %(id)s and prev_event_id ="
            " (select max(prev_event_id) from event_edges where event_id = %(id)s)",
        ),
    ),
    "an event that authorizes a state event is cut": Kind(
        "event_incomplete",
        _PAST_STATE,
        (
            "delete from event_auth where event_id = %(id)s"
            " and auth_id = (select max(auth_id) from event_auth where event_id = %(id)s)",
        ),
    ),
    "a state event is no state": Kind(
        "event_incomplete", _PAST_STATE, ("delete from state_events where event_id = %(id)s",)
    ),
    "an event has no state group": Kind(
        "event_without_state_group", _MESSAGES, ("delete from event_to_state_groups where event_id = %(id)s",)
    ),
    "an event has no JSON": Kind("event_without_json", _MESSAGES, ("delete from event_json where event_id = %(id)s",)),
    "an event is deleted": Kind("event_missing", _MESSAGES, _DELETE_EVENT),
    "a membership belongs to another user": Kind(
        "copied_value_differs",
        PAST_MEMBERSHIPS,
        ("update room_memberships set user_id = '@nobody:here' where event_id = %(id)s",),
    ),
    "a state event has another type": Kind(
        "copied_value_differs", _PAST_STATE, ("update state_events set type = 'other' where event_id = %(id)s",)
    ),
    "current state points nowhere": Kind(
        "event_missing",
        _UNREPLACED,
        ("update current_state_events set event_id = '$lost' || substr(%(id)s, 2) where event_id = %(id)s",),
        "$lost{id[1:]}",
    ),
    "current state is reset": Kind("state_reset", _REPLACED, (_SET_CURRENT,), "{piece}"),
    "current state and its last change are reset": Kind(
        "current_state_differs",
        _REPLACED,
        (
            """insert into current_state_delta_stream (stream_id, room_id, type, state_key, event_id)
               select 900000000, room_id, type, state_key, %(other)s from current_state_events
               where event_id = %(id)s""",
            _SET_CURRENT,
        ),
        "{piece}",
        hidden_by="no extremity",
    ),
    "an event has a state group that does not exist": Kind(
        "state_group_missing",
        _MESSAGES.replace("event_id as other", "(900000000 + stream_ordering)::text as other"),
        ("update event_to_state_groups set state_group = %(other)s::bigint where event_id = %(id)s",),
        "{other}",
    ),
    "a room has no forward extremity": Kind(
        "room_without_extremity",
        "select distinct room_id, room_id as id, '' as other from event_forward_extremities"
        " where room_id in (select room_id from current_state_events)",
        ("delete from event_forward_extremities where room_id = %(id)s",),
        area="extremities",
        hides="no extremity",
    ),
    "a current membership is a former one": Kind(
        "local_membership_differs",
        _FORMER_MEMBERSHIPS,
        (
            """update local_current_membership set event_id = %(other)s, event_stream_ordering = %(ordering)s,
               membership = %(membership)s where event_id = %(latest)s""",
        ),
    ),
    "sliding sync has a former membership": Kind(
        "sliding_sync_outdated",
        _FORMER_MEMBERSHIPS,
        (
            """update sliding_sync_membership_snapshots set membership_event_id = %(other)s, membership = %(membership)s
               where membership_event_id = %(latest)s""",
        ),
        "sliding_sync_membership_snapshots {id}",
    ),
    "sliding sync lacks a membership": Kind(
        "sliding_sync_outdated",
        _FORMER_MEMBERSHIPS,
        ("delete from sliding_sync_membership_snapshots where membership_event_id = %(latest)s",),
        "sliding_sync_membership_snapshots {id}",
    ),
    "sliding sync does not see the latest event": Kind(
        "sliding_sync_outdated",
        JOINED_ROOMS,
        ("update sliding_sync_joined_rooms set event_stream_ordering = %(other)s::bigint where room_id = %(room_id)s",),
        "sliding_sync_joined_rooms",
        area="sliding sync",
    ),
    "a room has too many members": Kind(
        "room_statistics",
        "select room_id, room_id as id, '' as other from room_stats_current"
        " where room_id in (select room_id from current_state_events)"
        " and room_id not in (select room_id from current_state_delta_stream where stream_id = 900000000)",
        ("update room_stats_current set joined_members = joined_members + 1 where room_id = %(id)s",),
        "joined_members",
        area="statistics",
    ),
    "a room has too much state": Kind(
        "room_statistics",
        "select room_id, room_id as id, '' as other from room_stats_current"
        " where room_id in (select room_id from current_state_events)"
        " and room_id not in (select room_id from current_state_delta_stream where stream_id = 900000000)",
        ("update room_stats_current set current_state_events = current_state_events + 10000 where room_id = %(id)s",),
        "current_state_events",
        area="statistics",
    ),
    "current state is lost": Kind(
        "state_reset", _UNREPLACED, ("delete from current_state_events where event_id = %(id)s",), "{piece}"
    ),
    "current state has another stream ID": Kind(
        "copied_value_differs",
        CURRENT_MEMBERS,
        ("update current_state_events set event_stream_ordering = 1 where event_id = %(id)s",),
    ),
    "current state has another membership": Kind(
        "copied_value_differs",
        CURRENT_MEMBERS,
        ("update current_state_events set membership = 'ban' where event_id = %(id)s",),
    ),
    "a redaction is lost": Kind(
        "event_incomplete",
        """select room_id, event_id as id, redacts as other from redactions join events using (event_id)
           where rejection_reason is null and event_id not in (select event_id from rejections)
           and event_id not in (select redacts from redactions)""",
        ("delete from redactions where event_id = %(id)s",),
    ),
    "a membership has another sender": Kind(
        "copied_value_differs",
        PAST_MEMBERSHIPS,
        ("update room_memberships set sender = '@nobody:here' where event_id = %(id)s",),
    ),
    "a current membership is lost": Kind(
        "local_membership_differs",
        _FORMER_MEMBERSHIPS,
        ("delete from local_current_membership where event_id = %(latest)s",),
    ),
    "sliding sync lacks a room": Kind(
        "sliding_sync_outdated",
        JOINED_ROOMS,
        ("delete from sliding_sync_joined_rooms where room_id = %(id)s",),
        "sliding_sync_joined_rooms",
        area="sliding sync",
    ),
    "sliding sync sees encryption": Kind(
        "sliding_sync_outdated",
        JOINED_ROOMS.replace(
            "where",
            "where room_id not in (select room_id from current_state_events where type = 'm.room.encryption') and",
            1,
        ),
        ("update sliding_sync_joined_rooms set is_encrypted = true where room_id = %(id)s",),
        "sliding_sync_joined_rooms",
        area="sliding sync",
    ),
    "an event points to a lost event": Kind(
        "event_missing",
        f"select messages.room_id, id, min(prev_event_id) as other from ({_MESSAGES}) as messages"
        " join event_edges on event_edges.event_id = id group by messages.room_id, id",
        (
            """update event_edges set prev_event_id = '$edge' || substr(%(id)s, 2)
               where event_id = %(id)s and prev_event_id = %(other)s""",
        ),
        "$edge{id[1:]}",
    ),
    "an authorization event is lost": Kind(
        "event_missing",
        """select events.room_id, events.event_id as id, min(auth_id) as other
           from event_auth join events using (event_id)
           where not outlier and rejection_reason is null and event_id not in (select event_id from rejections)
           group by events.room_id, events.event_id""",
        (
            """update event_auth set auth_id = '$auth' || substr(%(id)s, 2)
               where event_id = %(id)s and auth_id = %(other)s""",
        ),
        "$auth{id[1:]}",
        area="authorization",
    ),
    "the JSON of an event is changed": Kind(
        "event_altered",
        f"{_MESSAGES} and event_id in (select event_id from event_json where position('\"msgtype\"' in json) > 0)",
        ("""update event_json set json = replace(json, '"msgtype"', '"m_type"') where event_id = %(id)s""",),
    ),
    "the metadata of an event is truncated": Kind(
        "event_unloadable",
        _MESSAGES,
        ("""update event_json set internal_metadata = '{"soft_failed":' where event_id = %(id)s""",),
    ),
    "only the JSON of an event remains": Kind(
        "event_lost",
        _MESSAGES,
        ("delete from events where event_id = %(id)s", "delete from event_edges where event_id = %(id)s"),
    ),
    "a receipt names a lost event": Kind(
        "receipt_without_event",
        "select room_id, '$read' || stream_id as id, stream_id::text as other from receipts_linearized"
        " where event_stream_ordering is not null",
        ("update receipts_linearized set event_id = %(id)s where stream_id = %(other)s::bigint",),
        area="receipt",
    ),
    "a receipt cannot be read": Kind(
        "unreadable_value",
        """select room_id, '$read' || stream_id as id, stream_id::text as other,
                  concat_ws(' ', receipt_type, user_id, thread_id) as key from receipts_linearized""",
        ("update receipts_linearized set data = '7' where stream_id = %(other)s::bigint",),
        "receipts_linearized.data {key}",
        area="receipt",
    ),
}
