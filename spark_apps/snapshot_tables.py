"""Copy every catalogued table of Synapse's database, from one exported snapshot, onto the run's branch of bronze."""

from synapse_lakehouse import catalogue
from synapse_lakehouse.app import SparkApp, main
from synapse_lakehouse.bronze.copying import copy_tables
from synapse_lakehouse.bronze.recording import record_measures, record_snapshot
from synapse_lakehouse.source.errors import RecoveryConflict
from synapse_lakehouse.source.snapshot import exported

RESTARTS = 2


def snapshot_tables(app: SparkApp) -> None:
    """One run's copy: nothing on main changes, and a rerun replaces what an earlier attempt left on the branch.

    Where a standby cancels the copy, it starts over with a new snapshot.
    """
    for _ in range(RESTARTS):
        try:
            copy_source(app)
        except RecoveryConflict:
            app.progress("the standby cancelled the copy (conflict with recovery): starting over with a new snapshot")
        else:
            return
    copy_source(app)


def copy_source(app: SparkApp) -> None:
    """Copy and count what one snapshot of the source sees."""
    declared = catalogue.load()
    with exported(app.settings, declared) as (connection, snapshot):
        record_snapshot(app, snapshot)
        for reason in snapshot.drifted.values():
            app.progress(f"left as it was: {reason}")
        for novelty in snapshot.novelties:
            app.progress(f"not copied, because this lakehouse does not know it: {novelty}")
        fitting = declared.without(snapshot.drifted)
        copy_tables(app, fitting, connection, snapshot)
        record_measures(app, fitting, connection)


if __name__ == "__main__":
    main(__doc__, snapshot_tables)
