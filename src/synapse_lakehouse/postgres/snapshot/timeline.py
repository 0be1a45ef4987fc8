"""Compare the WAL positions of two PostgreSQL snapshots. In one WAL history, xmin shows which rows changed."""

from dataclasses import dataclass

from synapse_lakehouse.postgres.connection import Connection

MAX_XID_AGE = 1 << 31
"""Maximum distance of transaction IDs whose order is known, because xmin has 32 bits."""


@dataclass(frozen=True)
class WalPosition:
    """Cluster, database, timeline, WAL position (LSN) and start of the server of a snapshot.

    A restored dump is another database, and a promoted standby is on another timeline. In both cases, transaction IDs
    do not show which rows are newer. A disk that is restored to an earlier state has the same cluster, database and
    timeline, and writes its WAL a second time. An LSN below that of an earlier snapshot shows such a restore.
    ``wal_lsn`` is the end of the WAL after the snapshot was taken: no commit that the snapshot saw ends later.

    A copy of the data folder that runs as a server of its own, such as a restored backup, also has the same cluster,
    database and timeline. It started after the server that it was copied from. ``server_started_at`` is a time in ISO
    8601 and UTC; None on a standby, which replays the WAL of its primary.
    """

    system_identifier: int
    database_oid: int
    timeline: int
    wal_lsn: str
    server_started_at: str | None = None

    def continues(self, base: "WalPosition") -> bool:
        """Return whether this snapshot sees everything that ``base`` saw."""
        if self.server_started_at and base.server_started_at and self.server_started_at < base.server_started_at:
            return False
        return (self.system_identifier, self.database_oid, self.timeline) == (
            base.system_identifier,
            base.database_oid,
            base.timeline,
        ) and _lsn_bytes(base.wal_lsn) <= _lsn_bytes(self.wal_lsn)

    def is_behind(self, other: "WalPosition") -> bool:
        """Return whether this WAL position is before that of ``other``, in the same cluster and timeline."""
        return (self.system_identifier, self.timeline) == (other.system_identifier, other.timeline) and _lsn_bytes(
            self.wal_lsn
        ) < _lsn_bytes(other.wal_lsn)


def read_wal_position(connection: Connection) -> WalPosition:
    """Return the WAL position of the connected database."""
    row = connection.execute(
        "select system_identifier, (select oid::bigint from pg_database where datname = current_database()),"
        # After the promotion of its upstream server, a standby's last checkpoint has the old timeline for a while.
        " case when pg_is_in_recovery() then (select greatest(timeline_id, min_recovery_end_timeline)"
        " from pg_control_checkpoint(), pg_control_recovery())"
        " else ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int end,"
        " (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else"
        # If the last page of the WAL contains only its header, the written and replayed WAL ends before the header.
        " (select at - case when (at - '0/0') % pg_size_bytes(current_setting('wal_segment_size')) = 40 then 40"
        " when (at - '0/0') % current_setting('wal_block_size')::int = 24 then 24 else 0 end"
        " from pg_current_wal_insert_lsn() at) end)::text,"
        " case when not pg_is_in_recovery() then"
        " to_char(pg_postmaster_start_time() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US') end"
        " from pg_control_system()"
    ).fetchone()
    assert row is not None
    return WalPosition(*row)


def _lsn_bytes(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)
