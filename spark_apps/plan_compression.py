"""Plan from the newest release how to store room state in fewer rows: ``gold.compression_plan``.

From Synapse's database it only reads how far rooms are compressed. It changes nothing there.
"""

from datetime import UTC, datetime

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import ReleaseError
from synapse_lakehouse.compressor.plan import CompressionPlanner, find_rooms_without_savings
from synapse_lakehouse.compressor.postgres.snapshot_reader import connect_readers
from synapse_lakehouse.compressor.settings import load_compressor_settings
from synapse_lakehouse.iceberg.catalog.catalog import COMPRESSION_PLAN_TABLE
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.spark_app import SparkApp, run_spark_app


def plan_compression(app: SparkApp) -> None:
    """Append the plan of each room that the compressor's settings select."""
    tables.ensure_audit_tables(app.catalog)
    latest = store.read_latest_release(app.catalog)
    if not latest:
        raise ReleaseError("There is no release to plan from: the DAG lakehouse, or `lakehouse run`, makes one.")
    wanted = load_compressor_settings(app.settings)
    planning = CompressionPlanner(app.spark, latest, wanted)
    seen = find_rooms_without_savings(app.catalog, wanted)
    with connect_readers(str(app.settings.synapse_dsn), app.settings, "SYNAPSE_DSN") as reading:
        # The PostgreSQL snapshot ends before Spark works.
        with reading() as reader:
            compressed = reader.read_last_compressed(wanted.strategy)
        rooms = planning.select_rooms(
            {room: max(upto, seen.get(room, upto)) for room, upto in (seen | compressed).items()}
        )
        with reading() as reader:
            saved = {room: reader.read_progress(room) for room in rooms}
    found = planning.plan_rooms(saved)
    how = {"release": latest.number, "planned_at": datetime.now(UTC)} | wanted.layout_settings()
    store.append_audit_rows(app.catalog, COMPRESSION_PLAN_TABLE, [how | row for row in found], app.run)
    before, after = (sum(row.get(name) or 0 for row in found) for name in ("rows_before", "rows_after"))
    app.report_progress(f"{len(found)} rooms planned from release {latest.number}: {before} rows would be {after}")


if __name__ == "__main__":
    run_spark_app(__doc__, plan_compression, writes_branches=False)
