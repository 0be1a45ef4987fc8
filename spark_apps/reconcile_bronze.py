"""Copy the tables as every run does, then compare them with the source in the same snapshot, and mend what differs."""

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.ledger import record_measured_tables
from synapse_lakehouse.ingest.reconcile import reconcile_tables
from synapse_lakehouse.ingest.snapshot_session import AwaitPublishedTables, run_on_snapshot
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def reconcile_bronze(app: SparkApp) -> None:
    """Bring the run's branch of bronze up to the source, and prove it for as many rows as the budget allows."""
    run_on_snapshot(app, copy_and_verify)


def copy_and_verify(
    app: SparkApp, declared: Catalogue, connection: Connection, snapshot: PostgresSnapshot, known: AwaitPublishedTables
) -> None:
    """Copy, compare and mend, and count what is counted."""
    copy_tables(app, declared, connection, snapshot, known)
    reconcile_tables(app, declared, connection, snapshot)
    record_measured_tables(app, declared, connection)


if __name__ == "__main__":
    run_spark_app(__doc__, reconcile_bronze)
