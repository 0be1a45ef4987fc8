"""End a copy that blocks another session, such as an upgrade of Synapse that changes a table.

An upgrade that alters a table needs an ACCESS EXCLUSIVE lock. The upgrade waits until no copy reads the table, and
Synapse's own statements queue behind the upgrade. Autovacuum never waits for such a lock.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event
from typing import Final

from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.connection import Connection, connect, read_server_address
from synapse_lakehouse.postgres.errors import ReadError, SourceError

_POLL_SECONDS: Final = 5.0
"""Time between two checks. With the 2 s in the query, it is less than the lock_timeout of the readers, because readers
may queue behind the blocked session."""

_BLOCKED: Final = """
select relation::regclass::text, pid from pg_locks
where locktype = 'relation' and not granted and mode = 'AccessExclusiveLock'
  and waitstart < clock_timestamp() - interval '2 seconds' and %s = any(pg_blocking_pids(pid))
  -- on a standby, max_standby_streaming_delay limits the wait
  and not pg_is_in_recovery()
"""

_END_BLOCKERS: Final = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid = any(pg_blocking_pids(%s)) and usename = current_user
  and application_name = current_setting('application_name')
"""


@contextmanager
def end_if_blocking(settings: Settings, database: Database, exporting: Connection) -> Iterator[Collection[str]]:
    """While the context lasts, end the lakehouse's sessions that block a session which wants to lock a whole table.

    Each check opens a connection, so that a copy has no lasting connection beyond LAKEHOUSE_SOURCE_CONNECTIONS.

    :param exporting: the connection that exports the snapshot, and locks all tables.
    :returns: a collection that receives the names of the blocked tables, before the blocking sessions are ended.
    """
    tables, is_over = set[str](), Event()
    pid, server = exporting.info.backend_pid, read_server_address(exporting)

    def watch() -> None:
        while not is_over.wait(_POLL_SECONDS):
            # If the server cannot be reached, the copy itself reports the failure.
            with suppress(ReadError, SourceError), connect(settings, database, server) as connection:
                for table, blocked in connection.execute(_BLOCKED, [pid]).fetchall():
                    tables.add(table)
                    connection.execute(_END_BLOCKERS, [blocked])

    with ThreadPoolExecutor(1) as watching:
        watching.submit(watch)
        try:
            yield tables
        finally:
            is_over.set()
