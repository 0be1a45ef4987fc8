"""Copy the tables as every run does, then compare the copy with the source's rows and index entries.

The comparison reads the same PostgreSQL snapshot as the copy.
"""

from synapse_lakehouse.ingest.check_indexes import check_indexes
from synapse_lakehouse.ingest.ledger import record_measured_tables
from synapse_lakehouse.ingest.paired_copy import copy_session
from synapse_lakehouse.ingest.reconcile import reconcile_tables
from synapse_lakehouse.ingest.snapshot_session import retry_after_conflict
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


@retry_after_conflict
def reconcile_bronze(app: SparkApp) -> None:
    """Update bronze on the run's branch, then compare as many rows with the source as the time budget allows."""
    with copy_session(app) as session:
        for part in session.exported:
            reconcile_tables(app, part.catalogue, part.connection, part.snapshot)
        check_indexes(session)
        record_measured_tables(app, session.catalogue, session.connection)


if __name__ == "__main__":
    run_spark_app(__doc__, reconcile_bronze)
