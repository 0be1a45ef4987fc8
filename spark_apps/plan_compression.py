"""Plan from the latest release how to store room state in fewer rows, and append to ``gold.compression_plan``.

From Synapse's database the app reads only the saved progress of the compression. The app changes nothing there.
"""

from datetime import UTC, datetime

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import ReleaseError
from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.compressor.plan import CompressionPlanner, find_rooms_without_savings
from synapse_lakehouse.compressor.postgres.snapshot_connections import connect_readers
from synapse_lakehouse.compressor.settings import load_compressor_settings
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_PLAN_TABLE
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.postgres.connection import get_dsn
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def plan_compression(app: SparkApp) -> None:
    """Append a plan for each room that the compressor's settings select."""
    tables.ensure_audit_tables(app.catalog)
    latest = store.read_latest_release(app.catalog)
    if not latest:
        raise ReleaseError("There is no release to plan from. Run the DAG lakehouse, or `lakehouse run`, first.")
    settings = load_compressor_settings(app.settings)
    planner = CompressionPlanner(app.spark, latest, settings)
    without_savings = find_rooms_without_savings(app.catalog, settings)
    setting, dsn = get_dsn(app.settings, Database.STATE)
    with connect_readers(dsn, app.settings, setting) as open_reader:
        # Each PostgreSQL snapshot ends before the next Spark job starts.
        with open_reader() as reader:
            compressed = reader.read_last_compressed(settings.strategy)
        rooms = planner.select_rooms(
            {
                room: max(group, without_savings.get(room, group))
                for room, group in (without_savings | compressed).items()
            }
        )
        with open_reader() as reader:
            progress = {room: reader.read_progress(room) for room in rooms}
    plans = planner.plan_rooms(progress)
    columns = {"release": latest.number, "planned_at": datetime.now(UTC)} | settings.layout_settings()
    store.append_audit_rows(app.catalog, COMPRESSION_PLAN_TABLE, [columns | plan for plan in plans], app.run)
    before, after = (sum(plan.get(name) or 0 for plan in plans) for name in ("rows_before", "rows_after"))
    app.report_progress(f"{len(plans)} rooms planned from release {latest.number}: {before} rows would become {after}")


if __name__ == "__main__":
    run_spark_app(__doc__, plan_compression, writes_branches=False)
