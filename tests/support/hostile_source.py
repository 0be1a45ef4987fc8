"""Write hostile text to every text column of Synapse's database that the lakehouse copies.

First, the names of a room, a member, an event type and events are replaced in all tables, so that the rows still
belong together. Then one row of each copied text column gets hostile text, even if that breaks references.
"""

import base64
import json
from typing import Any, Final

import psycopg
from psycopg import sql

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.events.event_hashes import compute_content_hash
from tests.support import hostile_text

Owner = psycopg.Connection[tuple[Any, ...]]

ROOM: Final = f"!{hostile_text.ALL[:480]}:synapse.example"
MEMBER: Final = f"@{hostile_text.TEXTS[0]}\nforged {hostile_text.TEXTS[3]}@room <b>:synapse.example"
TYPE: Final = f"{hostile_text.TEXTS[2]}{hostile_text.TEXTS[4]}{hostile_text.TEXTS[7]}"
WRITER: Final = f"w {hostile_text.TEXTS[0]}{hostile_text.TEXTS[2]}"
EVENT: Final = f"${hostile_text.ALL[:480]}"
STATE_EVENT: Final = f"${hostile_text.TEXTS[2]}{hostile_text.TEXTS[3]}"

_ROOM_OF_FREE_IDS: Final = """
select room_id from rooms join events using (room_id)
where room_version in ('1', '2') and not outlier group by room_id order by count(*) desc, room_id limit 1
"""
_NAMES: Final = {
    MEMBER: """
        select user_id from local_current_membership where room_id = %(room)s and membership = 'join'
        order by user_id limit 1""",
    EVENT: """
        select event_id from events where room_id = %(room)s and type = 'm.room.message' and not outlier
        order by stream_ordering desc limit 1""",
    STATE_EVENT: """
        select event_id from current_state_events where room_id = %(room)s and type = 'm.room.topic'""",
    TYPE: "select 'm.room.topic'",
}
"""New name → query that returns the old name."""

_JSON: Final = {("event_json", "json"), ("event_json", "internal_metadata"), ("account_data", "content"),
                ("receipts_linearized", "data")}  # fmt: skip
_TEXT_COLUMNS: Final = """
select column_name::text, character_maximum_length from information_schema.columns
where table_schema = 'public' and table_name = %s and data_type in ('text', 'character varying')
"""
_ROWS: Final = (
    "insert into rejections values ('$rejected', %(all)s, %(all)s)",
    "insert into room_ban_redactions values (%(room)s, %(user)s, '$ban', null)",
    "insert into partial_state_rooms (room_id) values ('!partial' || %(all)s)",
    "insert into partial_state_events (room_id, event_id) values ('!partial' || %(all)s, '$partial' || %(all)s)",
    "insert into erased_users values (%(user)s)",
    "insert into instance_map (instance_id, instance_name) values (99, %(writer)s)",
    "insert into stream_positions values ('receipts', %(writer)s, 83), (%(all)s, %(writer)s, 5)",
)
"""Rows of tables that are empty in the sample, and a writer that is not configured."""

_UNCHANGED_TABLES: Final = {
    # A run needs these values: the schema version, and the writers.
    "schema_version", "applied_schema_deltas", "instance_map", "stream_positions",
}  # fmt: skip


def plant(owner: Owner) -> None:
    """Write hostile text to a copy of the sample."""
    owner.execute("set session_replication_role = replica")
    row = owner.execute(_ROOM_OF_FREE_IDS).fetchone()
    assert row, "no room of version 1 or 2"
    (room,) = row
    names = {room: ROOM}
    for new, query in _NAMES.items():
        ((old,),) = owner.execute(query.encode(), {"room": room}).fetchall()
        names[old] = new
    _rename(owner, names, room)
    _rename_in_json(owner, names)
    for statement in _ROWS:
        owner.execute(
            statement.encode(), {"room": ROOM, "user": MEMBER, "writer": WRITER, "all": hostile_text.ALL[:600]}
        )
    for table in catalogue.load_catalogue().copied_tables():
        if table.name not in _UNCHANGED_TABLES:
            _write_hostile_text(owner, table)
    unknown = sql.Identifier(hostile_text.TEXTS[2][:60])
    owner.execute(sql.SQL("create table {0} (id int); grant select on {0} to public").format(unknown))


def plant_refusal(owner: Owner) -> None:
    """Change a table so that a run refuses the database, with a message that contains hostile text."""
    kind = sql.Identifier(f"type {hostile_text.TEXTS[2]}"[:60])
    owner.execute(sql.SQL("create domain {} as int").format(kind))
    owner.execute("alter table erased_users rename to erased_users_before")
    owner.execute(sql.SQL("create table erased_users (user_id {})").format(kind))
    owner.execute("grant select on erased_users to public")


def remove_refusal(owner: Owner) -> None:
    """Undo :func:`plant_refusal`."""
    owner.execute("drop table erased_users")
    owner.execute("alter table erased_users_before rename to erased_users")


def _rename(owner: Owner, names: dict[str, str], room: str) -> None:
    """Replace names that are the whole value of a column. Event types change only in the room."""
    for table in catalogue.load_catalogue().tables:
        columns = _text_columns(owner, table.name)
        for column in columns:
            if (table.name, column) in _JSON:
                continue
            for old, new in names.items():
                if new == TYPE and (column != "type" or "room_id" not in columns):
                    continue
                owner.execute(
                    sql.SQL("update {} set {c} = %s where {c} = %s{}").format(
                        sql.Identifier(table.name),
                        sql.SQL(" and room_id = %s" if new == TYPE else ""),
                        c=sql.Identifier(column),
                    ),
                    [new, old, *([ROOM] if new == TYPE else [])],
                )


def _rename_in_json(owner: Owner, names: dict[str, str]) -> None:
    """Replace names in the JSON of the room's events, and update the content hashes."""
    rows = owner.execute("select event_id, json from event_json where room_id = %s", [ROOM]).fetchall()
    for event_id, text in rows:
        event = _replace_names(json.loads(text), names)
        event["content"] |= dict.fromkeys(("body", "name", "topic", "reason"), hostile_text.ALL)
        digest = base64.b64encode(compute_content_hash(event)).decode().rstrip("=")
        event["hashes"] = {"sha256": digest}
        owner.execute("update event_json set json = %s where event_id = %s", [json.dumps(event), event_id])


def _replace_names(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _replace_names(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replace_names(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def _write_hostile_text(owner: Owner, table: Table) -> None:
    """Write hostile text to one row of each copied text column."""
    columns = _text_columns(owner, table.name)
    copied = {name for column in table.columns for name in column.source_columns}
    for number, column in enumerate(columns):
        if column not in copied or (table.name, column) in _JSON:
            continue
        text = f"{hostile_text.TEXTS[number % 5]}{hostile_text.ALL[:300]}"[: columns[column]]
        owner.execute(
            sql.SQL(
                "update {0} set {1} = %s where ctid = (select ctid from {0} order by ctid"
                " offset %s %% (select count(*) from {0}) limit 1)"
            ).format(sql.Identifier(table.name), sql.Identifier(column)),
            [text, number],
        )


def _text_columns(owner: Owner, table: str) -> dict[str, int | None]:
    """Return the text columns of a table, each with its maximum length."""
    return dict(owner.execute(_TEXT_COLUMNS.encode(), [table]).fetchall())
