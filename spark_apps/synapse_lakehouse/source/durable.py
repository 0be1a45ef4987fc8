"""Snapshots that a crash of the server takes nothing back of."""

import time
from typing import Final

from synapse_lakehouse.source.connection import Connection
from synapse_lakehouse.source.lineage import Lineage

_LOOK_SECONDS: Final = 0.01


def await_durable(connection: Connection, seen: Lineage) -> None:
    """Wait until the log of what a snapshot of a primary saw is on disk, most often for some milliseconds.

    Others see a transaction with ``synchronous_commit`` off, as Synapse's setting of that name has it, before it is
    there. A crash undoes it and its id goes to another, whose rows a later run would take for long since copied. That
    can happen for three times ``wal_writer_delay``
    (https://www.postgresql.org/docs/current/wal-async-commit.html), so it is not waited longer: where a page of the log
    has just begun, its position is ahead of all that is written.
    """
    row = connection.execute("select 3 * extract(epoch from current_setting('wal_writer_delay')::interval)").fetchone()
    assert row is not None
    until = time.monotonic() + float(row[0])
    while not _is_flushed(connection, seen.wal_lsn) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


def _is_flushed(connection: Connection, lsn: str) -> bool:
    row = connection.execute("select pg_current_wal_flush_lsn() >= %s::pg_lsn", [lsn]).fetchone()
    assert row is not None
    return bool(row[0])
