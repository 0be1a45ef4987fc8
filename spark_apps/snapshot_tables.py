"""Copy every catalogued table of Synapse's database from an exported PostgreSQL snapshot to the run's branch."""

from synapse_lakehouse.ingest.ledger import record_measured_tables
from synapse_lakehouse.ingest.paired_copy import copy_session
from synapse_lakehouse.ingest.snapshot_session import retry_after_conflict
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


@retry_after_conflict
def snapshot_tables(app: SparkApp) -> None:
    """Copy the tables to the run's branch. Nothing on main changes. A rerun replaces the rows of earlier tries."""
    with copy_session(app) as session:
        record_measured_tables(app, session.catalogue, session.connection)


if __name__ == "__main__":
    run_spark_app(__doc__, snapshot_tables)
