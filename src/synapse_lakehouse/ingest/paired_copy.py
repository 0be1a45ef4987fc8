"""Copy main and state from a pair of snapshots, and again from another pair if the two do not fit together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from pyspark.sql import functions as f

from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.snapshot_session import SnapshotSession, snapshot_session
from synapse_lakehouse.postgres.connection import connect
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.postgres.snapshot.standby_replay import wait_for_replay
from synapse_lakehouse.spark_app import SparkApp

_MAX_PAIRS: Final = 3
"""Maximum number of pairs of snapshots for one copy."""
_MAX_GROUPS: Final = 10_000
"""Maximum number of missing groups that are examined. Synapse deletes fewer groups between two snapshots."""


@contextmanager
def copy_session(app: SparkApp) -> Iterator[SnapshotSession]:
    """Copy all tables to the run's branch, and yield the session with the snapshots of the copy.

    Raises the errors of :func:`snapshot_session`.

    :raises SourceError: when the snapshots of no pair fit together.
    """
    for pair in range(1, _MAX_PAIRS + 1):
        with snapshot_session(app) as session:
            copy_tables(session)
            if not has_deleted_groups(session):
                yield session
                return
        if pair < _MAX_PAIRS:
            app.report_progress("state groups are missing in one of the two snapshots: reading again from a fresh pair")
    raise SourceError(
        f"In each of {_MAX_PAIRS} pairs of snapshots, events in SYNAPSE_DSN name state groups that the database of "
        "SYNAPSE_STATE_DSN did not have, and that were not lost. Either that database is a standby that lags, or "
        "Synapse deletes rooms or history all the time. Nothing was published. Set SYNAPSE_STATE_DSN to the primary, "
        "or run again when Synapse's purges are over."
    )


def has_deleted_groups(session: SnapshotSession) -> bool:
    """Return whether main names a state group that Synapse deleted between the snapshots of main and of state.

    If main still names a group and state still lacks it in a new pair of snapshots, the group is lost, not deleted.
    """
    copied = {table.name for table in session.catalogue.tables}
    if len(session.exported) == 1 or not {"event_to_state_groups", "state_groups"} <= copied:
        return False
    spark = session.app.spark
    named = spark.table("bronze.event_to_state_groups").select("state_group").distinct()
    present = spark.table("bronze.state_groups").select(f.col("id").alias("state_group"))
    # Synapse deletes recent groups more often than old ones.
    newest = named.join(present, "state_group", "left_anti").orderBy(f.desc("state_group")).limit(_MAX_GROUPS)
    missing = [row.state_group for row in newest.collect()]
    if not missing:
        return False
    without_groups = session.get_exported(Database.STATE).snapshot.replayed_until
    return find_lost_groups(session.app.settings, missing, without_groups) != set(missing)


def find_lost_groups(settings: Settings, groups: Sequence[int], after: datetime) -> set[int]:
    """Return those of ``groups`` that main still names and state still lacks, in a new pair of snapshots.

    :param after: time at which state lacked the groups. A standby of main may name them until it has replayed their
        deletion.
    :raises SourceError: when a standby of main is behind that time.
    """
    named_sql = "select distinct state_group from event_to_state_groups where state_group = any(%s)"
    present_sql = "select id from state_groups where id = any(%s)"
    with connect(settings) as main, connect(settings, Database.STATE) as state:
        wait_for_replay(main, after, "SYNAPSE_DSN")
        named = {group for (group,) in main.execute(named_sql, [groups])}
        return named - {group for (group,) in state.execute(present_sql, [groups])}
