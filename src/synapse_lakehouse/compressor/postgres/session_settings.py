"""Session settings of the connection that writes."""

from typing import Final

WRITE_DSN_SETTING: Final = "SYNAPSE_WRITE_DSN"

SESSION_SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "statement_timeout": "30s",
    # While we wait, others wait for our locks. Below deadlock_timeout (1 s): we give up before PostgreSQL reports a
    # deadlock to us or to Synapse.
    "lock_timeout": "80ms",
    "idle_in_transaction_session_timeout": "30s",
    # It may be idle for long between two rooms, and must keep its advisory lock.
    "idle_session_timeout": "0",
    "client_connection_check_interval": "2s",
    # A commit does not hold its locks until the WAL flush. A server crash may lose our last transactions, each with its
    # progress; other transactions do not depend on them. The last commit of a room is synchronous.
    "synchronous_commit": "off",
    # A query fails if row-level security would hide rows from it.
    "row_security": "off",
    "TimeZone": "UTC",
}
"""PostgreSQL's settings of the session, by name."""
