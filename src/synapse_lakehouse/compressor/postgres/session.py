"""What every session that writes is like."""

from typing import Final

WRITE_DSN_SETTING: Final = "SYNAPSE_WRITE_DSN"

SESSION_SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    # While we wait, others wait for what we hold already. Less than deadlock_timeout (1 s), too: who waits for us and
    # whom we wait for sees us give way, never a deadlock.
    "lock_timeout": "80ms",
    "idle_in_transaction_session_timeout": "30s",
    # Between two rooms it may be idle for long, and holds the lock that keeps another compression out.
    "idle_session_timeout": "0",
    "client_connection_check_interval": "2s",
    # Locks are not held until the disk has it. A crash of the server may take the last of our transactions back, each
    # with its progress and without harm to any other; the last one of a room waits for the disk.
    "synchronous_commit": "off",
    # A query fails where row-level security would leave rows out of its result.
    "row_security": "off",
    "TimeZone": "UTC",
}
"""PostgreSQL's settings for the session that writes, by name."""
