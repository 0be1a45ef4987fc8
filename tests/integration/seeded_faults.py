"""Seeded faults in a copy of Synapse's database, many of each kind, each with the finding that it must cause.

``pick`` selects candidates: the room, and the parameters of ``change``. No event is picked twice.
"""

from dataclasses import dataclass
from typing import Any, Final

import psycopg

PER_KIND: Final = 6


@dataclass(frozen=True)
class Kind:
    """A kind of fault. ``pick`` returns ``room_id, id, other``; ``change`` may use ``%(id)s`` and the others.

    ``subject``: the finding's subject, as a format of the picked values. ``also``: the check and the subject of a
    further finding in the same room.
    """

    check: str
    pick: str
    change: tuple[str, ...]
    subject: str = "{id}"
    also: tuple[str, str] | None = None


_MESSAGES: Final = """
select room_id, event_id as id, event_id as other from events where type = 'm.room.message' and not outlier
and event_id not in (select event_id from event_forward_extremities)
and event_id not in (select event_id from event_relations)
and event_id not in (select relates_to_id from event_relations)
and event_id in (select prev_event_id from event_edges join events using (event_id) where not outlier)
and stream_ordering not in (select event_stream_ordering from sliding_sync_joined_rooms)"""
_PAST_MEMBERSHIPS: Final = """
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
_FORMER_MEMBERSHIPS: Final = """
select now.room_id, now.user_id as id, former.event_id as other, former.event_stream_ordering as ordering,
       former.membership, now.event_id as latest
from local_current_membership as now
join room_memberships as former on former.user_id = now.user_id and former.room_id = now.room_id
where former.event_id <> now.event_id and now.room_id in (select room_id from current_state_events)"""
_JOINED_ROOMS: Final = """
select room_id, min(stream_ordering)::text as id, room_id as other from events
where room_id in (select room_id from sliding_sync_joined_rooms) and stream_ordering > 0
group by room_id having count(*) > 3"""
_SET_CURRENT: Final = """
update current_state_events set event_id = %(other)s, event_stream_ordering = %(ordering)s where event_id = %(id)s"""
_GONE: Final = tuple(
    f"delete from {table} where event_id = %(id)s"
    for table in ("events", "event_json", "event_to_state_groups", "event_edges")
)

KINDS: Final = {
    "a past membership is deleted": Kind(
        "event_incomplete", _PAST_MEMBERSHIPS, ("delete from room_memberships where event_id = %(id)s",)
    ),
    "the edges of an event are cut": Kind(
        "event_incomplete", _MESSAGES, ("delete from event_edges where event_id = %(id)s",)
    ),
    "a state event is no state": Kind(
        "event_incomplete", _PAST_STATE, ("delete from state_events where event_id = %(id)s",)
    ),
    "an event has no state group": Kind(
        "event_without_state_group", _MESSAGES, ("delete from event_to_state_groups where event_id = %(id)s",)
    ),
    "an event has no JSON": Kind("event_without_json", _MESSAGES, ("delete from event_json where event_id = %(id)s",)),
    "an event is deleted": Kind("event_missing", _MESSAGES, _GONE),
    "a membership belongs to another user": Kind(
        "copied_value_differs",
        _PAST_MEMBERSHIPS,
        ("update room_memberships set user_id = '@nobody:here' where event_id = %(id)s",),
    ),
    "a state event has another type": Kind(
        "copied_value_differs", _PAST_STATE, ("update state_events set type = 'other' where event_id = %(id)s",)
    ),
    "current state points nowhere": Kind(
        "event_missing",
        _REPLACED,
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
    ),
    "an event is rejected but leaves a relation": Kind(
        "stray_event_rows",
        "select null as room_id, '$relation' || n as id, n::text as other from generate_series(1, 50) as n",
        ("insert into event_relations (event_id, relates_to_id, relation_type) values (%(id)s, '$x', 'm.annotation')",),
    ),
    "an event has a state group that does not exist": Kind(
        "state_group_missing",
        _MESSAGES.replace("event_id as other", "(900000000 + stream_ordering)::text as other"),
        ("update event_to_state_groups set state_group = %(other)s::bigint where event_id = %(id)s",),
        "{other}",
    ),
    "an alias leads nowhere": Kind(
        "stray_room_rows",
        "select '!nowhere' || n as room_id, '#a' || n as id, '' as other from generate_series(1, 50) as n",
        ("insert into room_aliases (room_alias, room_id) values (%(id)s, %(room_id)s)",),
        "{room_id}",
    ),
    "a room has no forward extremity": Kind(
        "room_without_extremity",
        "select distinct room_id, room_id as id, '' as other from event_forward_extremities"
        " where room_id in (select room_id from current_state_events)",
        ("delete from event_forward_extremities where room_id = %(id)s",),
    ),
    "a current membership is a former one": Kind(
        "local_membership_differs",
        _FORMER_MEMBERSHIPS,
        (
            """update local_current_membership set event_id = %(other)s, event_stream_ordering = %(ordering)s,
               membership = %(membership)s where event_id = %(latest)s""",
        ),
        also=("sliding_sync_outdated", "sliding_sync_membership_snapshots {id}"),
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
        _JOINED_ROOMS,
        ("update sliding_sync_joined_rooms set event_stream_ordering = %(id)s::bigint where room_id = %(room_id)s",),
        "sliding_sync_joined_rooms",
    ),
    "a room has too many members": Kind(
        "room_statistics",
        "select room_id, room_id as id, '' as other from room_stats_current"
        " where room_id in (select room_id from current_state_events)"
        " and room_id not in (select room_id from current_state_delta_stream where stream_id = 900000000)",
        ("update room_stats_current set joined_members = joined_members + 1 where room_id = %(id)s",),
        "joined_members",
    ),
}


def plant(
    connection: psycopg.Connection[Any], seed: int
) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
    """Plant the faults: the findings that they must cause, and those that follow: check, room, subject."""
    expected, following = set(), set()
    used: set[tuple[object, ...]] = set()
    connection.execute("set session_replication_role = replica")  # no foreign keys, as if their indexes were broken
    cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
    for kind in KINDS.values():
        # The seed decides the order.
        picks = f"select * from ({kind.pick}) as picks order by md5(id || other || %(seed)s), id, other"
        rows = cursor.execute(picks.encode(), {"seed": str(seed)}).fetchall()
        planted = 0
        for row in rows:
            marks = {(value,) for name, value in row.items() if name in ("id", "latest")} | {
                (row["room_id"], row["id"])
            }
            if planted == PER_KIND or marks & used:
                continue
            used |= marks
            planted += 1
            for statement in kind.change:
                connection.execute(statement.encode(), row)
            expected.add((kind.check, row["room_id"], _format(kind.subject, row)))
            if kind.also:
                check, subject = kind.also
                following.add((check, row["room_id"], _format(subject, row)))
    return expected, following


def _format(subject: str, row: dict[str, Any]) -> str:
    return subject.replace("{id[1:]}", str(row["id"])[1:]).format(**row)
