"""Snapshots that a crash of the server takes nothing back of."""

import time
from typing import Final

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import Connection, connect
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

_LOOK_SECONDS: Final = 0.01

_PATIENT_SECONDS: Final = 0.1

_MOST_SECONDS: Final = 30.0


def wait_for_flush(connection: Connection, seen: WalPosition, settings: Settings) -> bool:
    """Wait until the log of all that a snapshot of a primary saw end is on disk, most often no time at all.

    A commit with ``synchronous_commit`` off (Synapse's database setting of that name), and any rollback, is seen
    before. A crash undoes it: its id goes to another transaction, whose rows a later run would take for long since
    copied, and where it was an UPDATE the version before is back, which is old, too. PostgreSQL writes its log up to
    the last end of a transaction within three cycles of its walwriter, if the disk is not busy
    (https://www.postgresql.org/docs/current/wal-async-commit.html). What readers tidied up since, and open transactions
    wrote, would wait for the next one that ends, so where nobody else does we end one. A standby is sent nothing but
    what is on its primary's disk.

    :return: whether it is there, which is not waited for longer than half a minute.
    """
    began, has_ended_one = time.monotonic(), False
    while not _is_flushed(connection, seen.wal_lsn):
        waited = time.monotonic() - began
        if waited > _MOST_SECONDS:
            return False
        if waited > _PATIENT_SECONDS and not has_ended_one:
            _end_a_transaction(settings)
            has_ended_one = True
        time.sleep(_LOOK_SECONDS)
    return True


def _is_flushed(connection: Connection, lsn: str) -> bool:
    row = connection.execute("select pg_current_wal_flush_lsn() >= %s::pg_lsn", [lsn]).fetchone()
    assert row is not None
    return bool(row[0])


def _end_a_transaction(settings: Settings) -> None:
    # Of one without an id the log is told nothing.
    with connect(settings) as connection:
        connection.execute("select pg_current_xact_id()")
