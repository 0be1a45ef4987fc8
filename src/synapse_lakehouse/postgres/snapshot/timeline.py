"""Whether two snapshots are of one history, so that the row versions of the later one say what changed since."""

from dataclasses import dataclass

from synapse_lakehouse.postgres.connection import Connection

MAX_XID_AGE = 1 << 31
"""Transaction ids are compared in 32 bits, so versions can be told apart within this many transactions only."""


@dataclass(frozen=True)
class WalPosition:
    """Which cluster, database and timeline a snapshot is of, and how far the write-ahead log had come.

    A restored dump is another database, a promoted standby another timeline: there, transaction ids mean other
    transactions, and what is newer cannot be told from them. A disk that is set back to an earlier state (a snapshot of
    the volume or of the machine) keeps all three and writes its log anew: that it was behind for a while tells.
    ``wal_lsn`` is where the log ended after the snapshot: no commit that it saw ends later.
    """

    system_identifier: int
    database_oid: int
    timeline: int
    wal_lsn: str

    def continues(self, base: "WalPosition") -> bool:
        """Whether everything that ``base`` saw lies in this snapshot's past."""
        return (self.system_identifier, self.database_oid, self.timeline) == (
            base.system_identifier,
            base.database_oid,
            base.timeline,
        ) and _position(base.wal_lsn) <= _position(self.wal_lsn)

    def is_behind(self, other: "WalPosition") -> bool:
        """Whether the log of the same cluster and timeline had not come as far as in ``other``."""
        return (self.system_identifier, self.timeline) == (other.system_identifier, other.timeline) and _position(
            self.wal_lsn
        ) < _position(other.wal_lsn)


def read_wal_position(connection: Connection) -> WalPosition:
    """The lineage of the connected database."""
    row = connection.execute(
        "select system_identifier, (select oid::bigint from pg_database where datname = current_database()),"
        # After a promotion above it, a standby's last checkpoint is of the old timeline for a while.
        " case when pg_is_in_recovery() then (select greatest(timeline_id, min_recovery_end_timeline)"
        " from pg_control_checkpoint(), pg_control_recovery())"
        " else ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int end,"
        " (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else"
        # Where nothing is on a page yet but its header, what is written and replayed ends before that.
        " (select at - case when (at - '0/0') % pg_size_bytes(current_setting('wal_segment_size')) = 40 then 40"
        " when (at - '0/0') % current_setting('wal_block_size')::int = 24 then 24 else 0 end"
        " from pg_current_wal_insert_lsn() at) end)::text"
        " from pg_control_system()"
    ).fetchone()
    assert row is not None
    return WalPosition(*row)


def _position(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)
