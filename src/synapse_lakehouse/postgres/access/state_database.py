"""Compare the state groups that the main database names with those of the state database."""

from datetime import datetime
from typing import Final, NamedTuple

from synapse_lakehouse.catalogue import Catalogue, Database
from synapse_lakehouse.postgres.connection import Connection

_SAMPLE_ROWS: Final = 200
"""Rows that are read from each end of ``event_to_state_groups``, so that the comparison takes milliseconds."""

# Both parts of the union read Synapse's index on state_group. A state database from a backup, or on a standby that
# lags, lacks the newest groups, but has the oldest.
_NAMED_GROUPS_SQL: Final = """
select distinct state_group, room_id from (
  (select event_id, state_group from event_to_state_groups order by state_group desc limit %(rows)s)
  union all
  (select event_id, state_group from event_to_state_groups order by state_group limit %(rows)s)
) as named join events using (event_id)
"""


class DatabaseIdentity(NamedTuple):
    """A database on a running server.

    A standby, and a server on a copy of the disk, have the same system identifier and OID, but another start time.
    """

    system_identifier: int
    oid: int
    server_started_at: datetime


def read_database_identity(connection: Connection) -> DatabaseIdentity:
    """Return the identity of the connected database."""
    row = connection.execute(
        "select system_identifier, oid::bigint, pg_postmaster_start_time() from pg_control_system(), pg_database"
        " where datname = current_database()"
    ).fetchone()
    assert row is not None
    return DatabaseIdentity(*row)


def explain_same_database(main: Connection, state: Connection) -> str | None:
    """Return why SYNAPSE_STATE_DSN is refused if it names the database of SYNAPSE_DSN; None if it does not."""
    if read_database_identity(main) != read_database_identity(state):
        return None
    return (
        f"SYNAPSE_STATE_DSN names the same database as SYNAPSE_DSN, {main.info.dbname}, so its size would count "
        "twice. If homeserver.yaml gives the data store `state` no database of its own, remove SYNAPSE_STATE_DSN; "
        "otherwise set it to that database."
    )


def explain_other_database(state: Connection, written: Connection, setting: str) -> str | None:
    """Return why ``written`` is not the state database; None if it is, or if ``state`` is a standby of it.

    :param setting: name of the setting with the DSN of ``written``.
    """
    if read_database_identity(state)[:2] == read_database_identity(written)[:2]:
        return None
    return (
        f"The database {written.info.dbname} of {setting} is not the database {state.info.dbname} of "
        "SYNAPSE_STATE_DSN, so its state tables may be leftovers that Synapse no longer reads. "
        f"Nothing was changed. Set {setting} to the database with the data_stores state, which `databases` in "
        "homeserver.yaml names, or correct SYNAPSE_STATE_DSN."
    )


def can_compare(main: Catalogue, state: Catalogue) -> bool:
    """Return whether the tables of the comparison are among the tables that can be copied."""
    names = {table.name for part in (main, state) for table in part.tables}
    return Database.MAIN not in state.databases and {"events", "event_to_state_groups", "state_groups"} <= names


def explain_foreign_state(main: Connection, state: Connection, setting: str) -> str | None:
    """Return why ``state`` is not the state database of the homeserver of ``main``; None if it may be.

    One group in the right room suffices: ``state`` may then be the state database. Even if the state database was set
    back and Synapse assigns IDs again, its oldest groups still have the rooms of their events. If ``state`` has none of
    the groups, Synapse may have deleted a room since the events were read. So the absence of all groups is proof only
    if they belong to several rooms.

    :param setting: name of the setting with the DSN of ``state``, for the message.
    """
    named = set(main.execute(_NAMED_GROUPS_SQL, {"rows": _SAMPLE_ROWS}).fetchall())
    groups = sorted({group for group, _ in named})
    stored = set(state.execute("select id, room_id from state_groups where id = any(%s)", [groups]).fetchall())
    is_evident = bool(stored) or len({room for _, room in named}) > 1
    if named & stored or not is_evident:
        return None
    row = state.execute("select current_database()").fetchone()
    assert row is not None
    ids = {group for group, _ in stored}
    content = f"it has {len(ids)}, all of them in other rooms" if ids else "it has none"
    return (
        f"The database {row[0]} of {setting} does not contain the state of the homeserver in SYNAPSE_DSN: of "
        f"{len(groups)} state groups that events name, {content}. The state of every room would be wrong or lost. Set "
        f"{setting} to the database with the data_stores state, which `databases` in homeserver.yaml names, or correct "
        "SYNAPSE_DSN."
    )
