"""Kinds of faults that add rows to Synapse's tables: rows without a parent row, and wrong state groups."""

from typing import Final

from tests.support.fault_kinds import Kind

_NO_ROOM: Final = "select null as room_id, '${name}' || n as id, n::text as other from generate_series(1, 50) as n"
_ABSENT_ROOM: Final = (
    "select '!{name}' || n as room_id, '!{name}' || n as id, '' as other from generate_series(1, 50) as n"
)
_ROOMS: Final = """
select room_id, (9{number}0000000 + 10 * row_number() over (order by room_id))::text as id, min(id)::text as other,
       max(id)::text as newest
from state_groups where id < 900000000 group by room_id"""
_GROUP: Final = "insert into state_groups (id, room_id, event_id) values (%(id)s::bigint, %(room_id)s, '$')"
_EDGE: Final = "insert into state_group_edges (state_group, prev_state_group) values (%(id)s::bigint, {target})"


def _stray(name: str, statement: str) -> Kind:
    return Kind("stray_event_rows", _NO_ROOM.format(name=name), (statement,))


def _group(fault: str, number: int, *statements: str) -> Kind:
    return Kind(f"state_group_{fault}", _ROOMS.format(number=number), (_GROUP, *statements))


KINDS: Final = {
    "a relation remains": _stray(
        "relation",
        "insert into event_relations (event_id, relates_to_id, relation_type) values (%(id)s, '$x', 'm.annotation')",
    ),
    "a redaction remains": _stray(
        "redaction", "insert into redactions (event_id, redacts, received_ts) values (%(id)s, '$x', 1)"
    ),
    "a rejection remains": _stray(
        "rejection", "insert into rejections (event_id, reason, last_check) values (%(id)s, 'auth_error', '0')"
    ),
    "a use of a state group remains": _stray(
        "use", "insert into event_to_state_groups (event_id, state_group) select %(id)s, min(id) from state_groups"
    ),
    "an edge remains": _stray(
        "later",
        "insert into event_edges (event_id, prev_event_id, is_state) select %(id)s, min(event_id), false from events",
    ),
    "JSON remains": Kind(
        "json_without_event",
        "select room_id, '$json' || row_number() over (order by room_id) as id, '' as other from rooms",
        (
            """insert into event_json (event_id, room_id, internal_metadata, json, format_version)
               values (%(id)s, %(room_id)s, '{}', '{}', 3)""",
        ),
    ),
    "an alias leads nowhere": Kind(
        "stray_room_rows",
        _ABSENT_ROOM.format(name="alias"),
        ("insert into room_aliases (room_alias, room_id) values ('#' || %(id)s, %(id)s)",),
    ),
    "the depth of a room remains": Kind(
        "stray_room_rows",
        _ABSENT_ROOM.format(name="depth"),
        ("insert into room_depth (room_id, min_depth) values (%(id)s, 1)",),
    ),
    "a member is in a lost room": Kind(
        "room_missing",
        _ABSENT_ROOM.format(name="member"),
        (
            """insert into local_current_membership (room_id, user_id, event_id, membership)
               select %(id)s, user_id, event_id, membership from room_memberships order by event_id limit 1""",
        ),
    ),
    "an event waits for the state of a room": Kind(
        "partial_state_without_room",
        """select room_id, room_id as id, min(event_id) as other from events
           where not outlier and type = 'm.room.message' and room_id not in (select room_id from partial_state_rooms)
           group by room_id""",
        ("insert into partial_state_events (room_id, event_id) values (%(id)s, %(other)s)",),
        area="partial state",
    ),
    "state of a deleted group remains": Kind(
        "stray_state_rows",
        _ROOMS.format(number=1),
        (
            """insert into state_groups_state (state_group, room_id, type, state_key, event_id)
               values (%(id)s::bigint, %(room_id)s, 'm.room.topic', '', '$x')""",
        ),
    ),
    "a piece of state has a second row": Kind(
        "state_row_repeated",
        _ROOMS.format(number=7),
        (
            _GROUP,
            """insert into state_groups_state (state_group, room_id, type, state_key, event_id)
               select %(id)s::bigint, %(room_id)s, 'm.room.topic', '', unnest(array['$one', '$other'])""",
        ),
        subject="{id} m.room.topic ",
    ),
    "a group has lost its predecessor": _group("missing_predecessor", 2, _EDGE.format(target="920000000")),
    "a group follows a newer one": _group(
        "newer_predecessor",
        3,
        _GROUP.replace("%(id)s::bigint", "%(id)s::bigint + 1"),
        _EDGE.format(target="%(id)s::bigint + 1"),
    ),
    "a group follows one of another room": _group(
        "other_room",
        4,
        """insert into state_group_edges (state_group, prev_state_group)
           select %(id)s::bigint, min(id) from state_groups where room_id <> %(room_id)s""",
    ),
    "a group follows several": Kind(
        "state_group_several_predecessors",
        f"select * from ({_ROOMS.format(number=5)}) as groups where other <> newest",
        (_GROUP, _EDGE.format(target="%(other)s::bigint"), _EDGE.format(target="%(newest)s::bigint")),
    ),
    "a group follows itself": _group("cycle", 6, _EDGE.format(target="%(id)s::bigint")),
}
