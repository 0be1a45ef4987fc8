"""Copy every catalogued table of Synapse's database, from one exported snapshot, onto the run's branch of bronze."""

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.ledger import record_measured_tables
from synapse_lakehouse.ingest.snapshot_session import AwaitPublishedTables, run_on_snapshot
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def snapshot_tables(app: SparkApp) -> None:
    """One run's copy: nothing on main changes, and a rerun replaces what an earlier attempt left on the branch."""
    run_on_snapshot(app, copy)


def copy(
    app: SparkApp, declared: Catalogue, connection: Connection, snapshot: PostgresSnapshot, known: AwaitPublishedTables
) -> None:
    """Copy what is copied and count what is counted."""
    copy_tables(app, declared, connection, snapshot, known)
    record_measured_tables(app, declared, connection)


if __name__ == "__main__":
    run_spark_app(__doc__, snapshot_tables)
