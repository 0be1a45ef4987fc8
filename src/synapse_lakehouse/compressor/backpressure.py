"""Whether the database has enough to do without us."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from synapse_lakehouse.postgres.connection import Connection

_BUSY: Final = """
select (select count(*) from pg_locks join pg_stat_activity using (pid) where locktype = 'virtualxid' and granted
        and datname = current_database() and pid <> pg_backend_pid()),
       coalesce(greatest(
         (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) from pg_stat_replication),
         (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) from pg_replication_slots
          where active and slot_type = 'physical')), 0)::bigint
"""
"""Sessions in a transaction, and bytes that the slowest replica lacks; what anybody may see, no right is needed."""

_LOOK_EVERY_SECONDS: Final = 0.5


@dataclass
class Backpressure:
    """Waits while more than ``sessions`` others are in a transaction, or a replica lacks more than ``lag_bytes``."""

    connection: Connection
    sessions: int
    lag_bytes: int
    told: Callable[[str], None]
    """Told each time that it begins to wait, and that it waited."""
    seconds_paused: float = 0.0
    """Seconds spent waiting."""
    _looked: float = field(default=0.0, init=False)

    def wait(self) -> None:
        """Return when there is room for us."""
        if time.monotonic() - self._looked < _LOOK_EVERY_SECONDS:
            return
        if why := self._busy():
            self.told(f"waiting: {why}")
            began = time.monotonic()
            while why:
                time.sleep(_LOOK_EVERY_SECONDS)
                why = self._busy()
            waited = time.monotonic() - began
            self.seconds_paused += waited
            self.told(f"waited {waited:.0f} s")
        self._looked = time.monotonic()

    def _busy(self) -> str | None:
        row = self.connection.execute(_BUSY.encode()).fetchone()
        assert row is not None
        sessions, lag = row
        if sessions > self.sessions:
            return f"{sessions} sessions are in a transaction"
        return f"a replica is {lag / 1e6:.0f} MB behind" if lag > self.lag_bytes else None
