"""Pause while Synapse's database is busy or a replica lags."""

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
"""Other sessions in a transaction, and the lag of the slowest replica in bytes. The query needs no privileges."""

_POLL_SECONDS: Final = 0.5


@dataclass
class Backpressure:
    """Waits while the database is busy.

    It is busy while more than ``sessions`` other sessions are in a transaction, or a replica lags by more than
    ``lag_bytes``.
    """

    connection: Connection
    sessions: int
    lag_bytes: int
    report: Callable[[str], None]
    """Receives a line at the start and at the end of each wait."""
    seconds_paused: float = 0.0
    """Seconds spent waiting."""
    _checked_at: float = field(default=0.0, init=False)

    def wait(self) -> None:
        """Return when the database is not busy."""
        if time.monotonic() - self._checked_at < _POLL_SECONDS:
            return
        if reason := self._busy_reason():
            self.report(f"waiting: {reason}")
            started_at = time.monotonic()
            while reason:
                time.sleep(_POLL_SECONDS)
                reason = self._busy_reason()
            waited = time.monotonic() - started_at
            self.seconds_paused += waited
            self.report(f"waited {waited:.0f} s")
        self._checked_at = time.monotonic()

    def _busy_reason(self) -> str | None:
        row = self.connection.execute(_BUSY.encode()).fetchone()
        assert row is not None
        sessions, lag = row
        if sessions > self.sessions:
            return f"{sessions} sessions are in a transaction"
        return f"a replica is {lag / 1e6:.0f} MB behind" if lag > self.lag_bytes else None
