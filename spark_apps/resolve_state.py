"""Resolve the state of every room on the run's branch: the intervals of state groups in which each event applies.

Rooms with broken state-group edges are recorded in ``silver.state_faults``; the other rooms are not affected.
"""

from synapse_lakehouse.room_state.resolve import is_up_to_date, resolve_rooms
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def resolve_state(app: SparkApp) -> None:
    """Write ``silver.state_positions``, ``state_intervals`` and ``state_faults``, if state groups changed."""
    if is_up_to_date(app.catalog, app.run.branch):
        app.report_progress("no state group changed")
        return
    groups = resolve_rooms(app.spark, app.catalog, app.settings, app.run.branch)
    app.report_progress(f"{groups.nodes.num_rows} state groups numbered")
    if broken := set(groups.faults["room_id"].to_pylist()):
        app.report_progress(f"{len(broken)} rooms have broken state groups; see silver.state_faults")


if __name__ == "__main__":
    run_spark_app(__doc__, resolve_state, always_needs_spark=False)
