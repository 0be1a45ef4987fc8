"""The connection that writes to Synapse's database, under an advisory lock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from synapse_lakehouse.compressor.algorithm.errors import CompressorError
from synapse_lakehouse.compressor.errors import CompressorRunningError, convert_database_error
from synapse_lakehouse.compressor.postgres import progress_store
from synapse_lakehouse.compressor.postgres.progress_tables import PRIVILEGES, PROGRESS_TABLES, list_privileges
from synapse_lakehouse.compressor.postgres.session_settings import SESSION_SETTINGS, WRITE_DSN_SETTING
from synapse_lakehouse.compressor.postgres.supported_version import require_supported_version
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.row_security import find_hidden_rows
from synapse_lakehouse.postgres.access.state_database import explain_other_database
from synapse_lakehouse.postgres.connection import Connection, build_session_settings, open_connection

_LOCK: Final = 7_365_871_530_442_099
"""Key of the advisory lock that a compression takes in its database."""
_LOCK_WAIT_SECONDS: Final = 15.0


def require_write_dsn(settings: Settings) -> str:
    """Return SYNAPSE_WRITE_DSN.

    :raises CompressorError: when it is not set.
    """
    if not settings.synapse_write_dsn:
        raise CompressorError(
            f"{WRITE_DSN_SETTING} is not set. Set it to the database to compress, with a role that may write state: "
            "`lakehouse grants --compress` prints the SQL of the role."
        )
    return settings.synapse_write_dsn


def require_state_database(connection: Connection, settings: Settings) -> None:
    """Raise :class:`CompressorError` if SYNAPSE_STATE_DSN is set and names another database than ``connection``."""
    if not settings.synapse_state_dsn:
        return
    session = build_session_settings(settings)
    with open_connection(settings.synapse_state_dsn, session, "SYNAPSE_STATE_DSN")[1] as state:
        if problem := explain_other_database(state, connection, WRITE_DSN_SETTING):
            raise CompressorError(problem)


@contextmanager
def open_write_connection(dsn: str) -> Iterator[Connection]:
    """Open the connection in autocommit mode, take the advisory lock and create missing progress tables.

    :raises SourceError: when no connection can be opened, or this version of Synapse is not supported.
    :raises CompressorRunningError: when another compressor of this product has the lock.
    :raises CompressorError: when the database is read-only, the role lacks a privilege, or a statement fails.
    """
    _, connection = open_connection(dsn, SESSION_SETTINGS, WRITE_DSN_SETTING)
    try:
        with connection:
            _take_lock(connection)
            require_rights(connection)
            require_supported_version(connection)
            progress_store.create_tables(connection)
            yield connection
    except psycopg.Error as error:
        raise convert_database_error(error) from None


def _take_lock(connection: Connection) -> None:
    # The server may need some seconds to notice that a killed process has closed its connection.
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while connection.execute("select pg_try_advisory_lock(%s)", [_LOCK]).fetchone() != (True,):
        if time.monotonic() > deadline:
            raise CompressorRunningError("Another compression works on this database. Wait until it has ended.")
        time.sleep(0.2)


def require_rights(connection: Connection) -> None:
    """Raise :class:`CompressorError` if the database is read-only, or the role lacks a right."""
    if connection.execute("select pg_is_in_recovery()").fetchone() == (True,):
        raise CompressorError(f"{WRITE_DSN_SETTING} names a standby, which is read-only. Set it to the primary.")
    if problems := find_hidden_rows(connection, PRIVILEGES):
        raise CompressorError("\n".join(problems))
    missing = connection.execute(
        "select distinct name from unnest(%s::text[], %s::text[]) as needed(name, privilege)"
        " where to_regclass(name) is not null and not has_table_privilege(name, privilege)"
        " union select 'state_groups' where not has_any_column_privilege('state_groups', 'update')"
        " union select name from unnest(%s::text[]) as name where to_regclass(name) is null"
        " and not has_schema_privilege(current_schema(), 'create') order by 1",
        [*_required_privileges(), list(PROGRESS_TABLES)],
    ).fetchall()
    if missing:
        raise CompressorError(
            f"The role of {WRITE_DSN_SETTING} lacks privileges on {', '.join(name for (name,) in missing)}, so nothing "
            "was compressed. `lakehouse grants --compress` prints the SQL of a role with these privileges. Run the SQL "
            "again after each upgrade of Synapse."
        )


def _required_privileges() -> tuple[list[str], list[str]]:
    required = [(name, privilege) for privilege, name, columns in list_privileges() if columns is None]
    names, privileges = zip(*required, strict=True)
    return list(names), list(privileges)
