"""Copy every catalogued table of Synapse's database, from one exported snapshot, onto the run's branch of bronze."""

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.ingest.copy_tables import copy_tables
from synapse_lakehouse.ingest.ledger import record_measures
from synapse_lakehouse.ingest.snapshot_session import Known, on_a_snapshot
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.snapshot.snapshot import Snapshot
from synapse_lakehouse.spark_app import SparkApp, main


def snapshot_tables(app: SparkApp) -> None:
    """One run's copy: nothing on main changes, and a rerun replaces what an earlier attempt left on the branch."""
    on_a_snapshot(app, copy)


def copy(app: SparkApp, declared: Catalogue, connection: Connection, snapshot: Snapshot, known: Known) -> None:
    """Copy what is copied and count what is counted."""
    copy_tables(app, declared, connection, snapshot, known)
    record_measures(app, declared, connection)


if __name__ == "__main__":
    main(__doc__, snapshot_tables)
