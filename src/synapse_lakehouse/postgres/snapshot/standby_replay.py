"""Wait until a standby has replayed all transactions of its primary up to a time."""

import time
from datetime import datetime
from typing import Final

from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import SourceError

MAX_SECONDS: Final = 30.0

_POLL_SECONDS: Final = 0.1

_IDLE_SECONDS: Final = 1.0
"""If a standby with a running WAL receiver has no WAL to replay for this long, it has all transactions.

While the primary is idle, the time of the last replayed commit does not show this."""

_PROGRESS: Final = """
select not pg_is_in_recovery() or coalesce(pg_last_xact_replay_timestamp() >= %s, false),
  exists (select from pg_stat_wal_receiver where pid is not null)
    and pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()
"""


def read_replayed_until(connection: Connection) -> datetime:
    """Return the time up to which the database has all transactions: now; on a standby, its last replayed commit's."""
    row = connection.execute(
        "select coalesce(case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end, clock_timestamp())"
    ).fetchone()
    assert row is not None
    replayed_until: datetime = row[0]
    return replayed_until


def wait_for_replay(connection: Connection, moment: datetime, setting: str, max_seconds: float = MAX_SECONDS) -> None:
    """Wait until the connected database has all transactions that its primary committed until ``moment``.

    A primary has these transactions, so it needs no wait. The wait ends the connection's transaction, so that the
    connection's next transaction sees the replayed transactions.

    :param moment: time of the snapshot of Synapse's other database.
    :param setting: name of the setting with the DSN of the connected database.
    :raises SourceError: when the replay takes longer than ``max_seconds``.
    """
    idle_since, ends = None, time.monotonic() + max_seconds
    while True:
        has_passed, is_idle = connection.execute(_PROGRESS.encode(), [moment]).fetchone() or (False, False)
        connection.rollback()
        now = time.monotonic()
        idle_since = (idle_since or now) if is_idle else None
        if has_passed or (idle_since and now - idle_since >= _IDLE_SECONDS):
            return
        if now > ends:
            raise SourceError(
                f"The database of {setting} is a standby, and within {max_seconds:.0f} s it did not replay the WAL of "
                f"its primary up to {moment:%Y-%m-%d %H:%M:%S %Z}, the time of the snapshot of Synapse's other "
                "database. State groups would look lost, so nothing was published. Check the replication of the "
                f"standby (primary_conninfo, recovery_min_apply_delay, pg_get_wal_replay_pause_state()), or set "
                f"{setting} to the primary."
            )
        time.sleep(_POLL_SECONDS)
