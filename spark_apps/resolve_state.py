"""Resolve the state of every room on the run's branch: compute the intervals of state groups that contain each event.

Rooms with broken state-group edges are recorded in ``silver.state_faults``. Other rooms are resolved nevertheless.
"""

from synapse_lakehouse.room_state.resolve import is_up_to_date, resolve_rooms
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def resolve_state(app: SparkApp) -> None:
    """Write ``silver.state_positions``, ``state_intervals`` and ``state_faults``, if state groups changed."""
    if is_up_to_date(app.catalog, app.run.branch):
        app.report_progress("no state group changed")
        return
    resolved = resolve_rooms(app.spark, app.catalog, app.run.branch)
    rooms = "changed rooms" if resolved.is_partial else "all rooms"
    app.report_progress(f"{resolved.groups} state groups of {rooms} resolved")
    if resolved.broken_rooms:
        app.report_progress(f"{resolved.broken_rooms} rooms have broken state groups; see silver.state_faults")


if __name__ == "__main__":
    run_spark_app(__doc__, resolve_state, always_needs_spark=False)
