"""Copy the tables as every run does, then compare them with the source in the same snapshot, and mend what differs."""

from synapse_lakehouse import catalogue
from synapse_lakehouse.app import SparkApp, main
from synapse_lakehouse.bronze.copying import copy_tables
from synapse_lakehouse.bronze.parity import verify_tables
from synapse_lakehouse.bronze.recording import record_measures, record_snapshot
from synapse_lakehouse.source.snapshot import exported


def verify_parity(app: SparkApp) -> None:
    """Bring the run's branch of bronze up to the source, and prove it for as many rows as the budget allows."""
    declared = catalogue.load()
    with exported(app.settings, declared) as (connection, snapshot):
        record_snapshot(app, snapshot)
        copy_tables(app, declared, connection, snapshot)
        verify_tables(app, declared, connection, snapshot)
        record_measures(app, declared, connection)


if __name__ == "__main__":
    main(__doc__, verify_parity)
