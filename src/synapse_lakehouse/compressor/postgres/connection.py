"""The connection that writes to Synapse's database: it waits for nobody, and stops when its process does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from synapse_lakehouse.compressor import saved_progress
from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.errors import CompressorRunningError, convert_database_error
from synapse_lakehouse.compressor.postgres.progress_tables import PRIVILEGES, PROGRESS_TABLES, WRITTEN_TABLES
from synapse_lakehouse.compressor.postgres.session import SESSION_SETTINGS, WRITE_DSN_SETTING
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.row_security import find_hidden_rows
from synapse_lakehouse.postgres.connection import Connection, open_connection

_LOCK: Final = 7_365_871_530_442_099
"""The advisory lock that a compression holds on its database."""
_PATIENCE_SECONDS: Final = 15.0


def require_write_dsn(settings: Settings) -> str:
    """The database to compress.

    :raises CompressorError: when the setting is missing.
    """
    if not settings.synapse_write_dsn:
        raise CompressorError(
            f"{WRITE_DSN_SETTING} is not set: the database to compress, for a role that may write its state. "
            "`lakehouse grants --compress` prints the SQL of such a role."
        )
    return settings.synapse_write_dsn


@contextmanager
def open_write_connection(dsn: str) -> Iterator[Connection]:
    """The only connection of this kind, in autocommit mode; the tables of progress are there.

    :raises SourceError: when it cannot be made.
    :raises CompressorRunningError: when another one of ours works on this database.
    :raises CompressorError: when the database takes no changes from this role, is of a Synapse that is too old, or a
        statement fails.
    """
    _, connection = open_connection(dsn, SESSION_SETTINGS, WRITE_DSN_SETTING)
    try:
        with connection:
            _take_lock(connection)
            require_rights(connection)
            saved_progress.create_tables(connection)
            yield connection
    except psycopg.Error as error:
        raise convert_database_error(error) from None


def _take_lock(connection: Connection) -> None:
    # The server may need a moment to notice that a killed process has gone.
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while connection.execute("select pg_try_advisory_lock(%s)", [_LOCK]).fetchone() != (True,):
        if time.monotonic() > deadline:
            raise CompressorRunningError(
                "Another `lakehouse compress apply` is at work on this database. Let it end first."
            )
        time.sleep(0.2)


def require_rights(connection: Connection) -> None:
    """:raises CompressorError: when the database takes no changes from this role, or its Synapse is too old."""
    if connection.execute("select pg_is_in_recovery()").fetchone() == (True,):
        raise CompressorError(f"{WRITE_DSN_SETTING} leads to a standby, which takes no changes. Give the primary's.")
    if connection.execute("select to_regclass('state_groups_pending_deletion') is null").fetchone() == (True,):
        raise CompressorError(
            "This database has no state_groups_pending_deletion: its Synapse deletes state groups at once, also while "
            "they are compressed, and a state could be lost. Upgrade Synapse, and start it once."
        )
    if problems := find_hidden_rows(connection, PRIVILEGES):
        raise CompressorError("\n".join(problems))
    lacking = connection.execute(
        "select distinct name from unnest(%s::text[], %s::text[]) as needed(name, privilege)"
        " where to_regclass(name) is not null and not has_table_privilege(name, privilege)"
        " union select 'state_groups' where not has_any_column_privilege('state_groups', 'update')"
        " union select name from unnest(%s::text[]) as name where to_regclass(name) is null"
        " and not has_schema_privilege(current_schema(), 'create') order by 1",
        [*_needed(), list(PROGRESS_TABLES)],
    ).fetchall()
    if lacking:
        raise CompressorError(
            f"The role of {WRITE_DSN_SETTING} may not write {', '.join(name for (name,) in lacking)}: "
            "`lakehouse grants --compress` prints the SQL of one that may."
        )


def _needed() -> tuple[list[str], list[str]]:
    state = [(name, right) for name in ("state_group_edges", "state_groups_state") for right in ("insert", "delete")]
    own = [(name, right) for name in WRITTEN_TABLES for right in ("select", "insert", "update", "delete")]
    names, rights = zip(*state, *own, strict=True)
    return list(names), list(rights)
