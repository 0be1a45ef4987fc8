"""Maintain the files of the lake: compact tables, publish the result, then delete files that only old releases need.

The app works on published content and can be repeated at any time. A table that cannot be compacted is skipped, and
the app fails after all other work.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.lease import lease
from synapse_lakehouse.iceberg.maintenance import maintenance
from synapse_lakehouse.iceberg.maintenance.publish_compaction import compact_and_publish
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.branches import load_branched_tables
from synapse_lakehouse.spark_app import SparkApp, run_spark_app

PARALLEL_TABLES = 4


def maintain_lake(app: SparkApp) -> None:
    """Compact every table, expire releases older than LAKEHOUSE_ERASURE_DAYS, delete orphan files."""
    now, days = datetime.now(UTC), app.settings.lakehouse_erasure_days
    # Maintenance works on main, not on the run's own branch.
    app.spark.conf.unset("spark.wap.branch")
    failures: list[Exception] = []
    published, expiry = store.read_releases(app.catalog), now - timedelta(days=days)
    retained = maintenance.select_retained_releases(published, expiry)
    if retained:
        branch = Run(f"{app.run.run_id} compaction", app.run.start, app.run.end).branch
        compacted, failures = compact_and_publish(
            app.spark, app.catalog, retained, branch, app.lease.renew, app.report_progress
        )
        published += [compacted] if compacted else []
    retained = maintenance.select_retained_releases(published, expiry)
    app.report_progress(f"retained: the latest release, and all releases since {expiry:%Y-%m-%d %H:%M}Z")

    def maintain(name: str) -> maintenance.MaintenanceResult:
        pinned = {release.tables[name] for release in retained if name in release.tables}
        return maintenance.maintain_branched_table(app.spark, name, pinned, expiry)

    branched = [".".join(table.name()) for table in load_branched_tables(app.catalog)]
    commands = tables.load_table_or_none(app.catalog, COMMANDS_TABLE)
    unbranched = [*store.AUDIT_SCHEMAS, *([COMMANDS_TABLE] if commands else [])]
    command_days = app.settings.lakehouse_replication_days
    if commands and commands.current_snapshot() and command_days:
        maintenance.delete_old_commands(app.spark, now - timedelta(days=command_days))
    # With 0 days, even new orphan files are deleted, so no other run may be writing.
    app.lease.renew()
    with ThreadPoolExecutor(PARALLEL_TABLES) as pool:
        # All tables are submitted before the first failure is raised.
        work = [
            pool.map(maintain, branched),
            pool.map(partial(maintenance.maintain_unbranched_table, app.spark), unbranched),
        ]
        results = [*chain(*work)]
    lease.trim_lease_log(app.catalog, now - maintenance.LEASE_LOG)
    total = sum(results, start=maintenance.MaintenanceResult())
    app.report_progress(
        f"{total.snapshots} snapshots, {total.refs} tags and branches deleted; {total.files:,} files deleted, "
        f"{total.orphan_files} of them orphan files, {total.bytes / 1e6:,.1f} MB"
    )
    if failures:
        raise failures[0]


if __name__ == "__main__":
    run_spark_app(__doc__, maintain_lake)
