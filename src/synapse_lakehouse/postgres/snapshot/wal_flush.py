"""Wait until the WAL of everything that a snapshot saw is flushed, so that a crash of the server cannot undo it."""

import time
from collections.abc import Mapping
from typing import Final

from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import Connection, connect, read_server_address
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

_POLL_SECONDS: Final = 0.01

_SECONDS_BEFORE_OWN_TRANSACTION: Final = 0.1

_MAX_SECONDS: Final = 30.0


def wait_for_flush(connection: Connection, position: WalPosition, settings: Settings, database: Database) -> bool:
    """Wait until the primary has flushed its WAL up to the snapshot's position. Usually this is already done.

    If Synapse's database setting ``synchronous_commit`` is off, a snapshot sees commits and rollbacks before their WAL
    is flushed. A crash undoes such a commit. PostgreSQL then assigns the commit's transaction ID again, so a later run
    would treat the new rows as already copied. After an undone UPDATE, the previous row version is current again, and
    it also looks already copied. PostgreSQL flushes WAL up to the last finished transaction within three cycles of its
    walwriter, if the disk is not busy (https://www.postgresql.org/docs/current/wal-async-commit.html). WAL of page
    pruning and of open transactions is flushed only after a later transaction finishes. If no transaction finishes,
    this function runs one itself. A standby receives only WAL that its primary has flushed.

    :returns: False if the flush takes longer than 30 seconds.
    """
    started, ran_own_transaction = time.monotonic(), False
    while not _is_flushed(connection, position.wal_lsn):
        waited = time.monotonic() - started
        if waited > _MAX_SECONDS:
            return False
        if waited > _SECONDS_BEFORE_OWN_TRANSACTION and not ran_own_transaction:
            _run_own_transaction(settings, database, read_server_address(connection))
            ran_own_transaction = True
        time.sleep(_POLL_SECONDS)
    return True


def _is_flushed(connection: Connection, lsn: str) -> bool:
    row = connection.execute("select pg_current_wal_flush_lsn() >= %s::pg_lsn", [lsn]).fetchone()
    assert row is not None
    return bool(row[0])


def _run_own_transaction(settings: Settings, database: Database, server: Mapping[str, str]) -> None:
    # A transaction without an XID writes no WAL, so this one requests an XID.
    with connect(settings, database, server) as connection:
        connection.execute("select pg_current_xact_id()")
