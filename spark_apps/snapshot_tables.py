"""Copy every catalogued table of Synapse's database, from one exported snapshot, onto the run's branch of bronze."""

from synapse_lakehouse import catalogue
from synapse_lakehouse.app import SparkApp, main
from synapse_lakehouse.bronze.copying import copy_tables
from synapse_lakehouse.bronze.recording import record_measures, record_snapshot
from synapse_lakehouse.source.snapshot import exported


def snapshot_tables(app: SparkApp) -> None:
    """One run's copy: nothing on main changes, and a rerun replaces what an earlier attempt left on the branch."""
    declared = catalogue.load()
    with exported(app.settings, declared) as (connection, snapshot):
        record_snapshot(app, snapshot)
        copy_tables(app, declared, connection, snapshot)
        record_measures(app, declared, connection)


if __name__ == "__main__":
    main(__doc__, snapshot_tables)
