"""Session settings of the connection that writes."""

from typing import Final

WRITE_DSN_SETTING: Final = "SYNAPSE_WRITE_DSN"

SESSION_SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    # While this session waits, others wait for its locks. The limit is below deadlock_timeout (1 s), so the session
    # gives up before PostgreSQL reports a deadlock to Synapse.
    "lock_timeout": "80ms",
    "idle_in_transaction_session_timeout": "30s",
    # The session may be idle for long between two rooms, and must keep its advisory lock.
    "idle_session_timeout": "0",
    "client_connection_check_interval": "2s",
    # A commit releases its locks before the WAL flush. A server crash may lose the last transactions, together with
    # their saved progress. The last commit of a room is synchronous.
    "synchronous_commit": "off",
    # A query fails if row-level security would hide rows from it.
    "row_security": "off",
    "TimeZone": "UTC",
}
"""PostgreSQL's settings of the session, by name."""
