"""Look after the lake's files under its lease: compact, publish that, then delete what only old releases hold.

Works on what is published, whatever became of the run that it belongs to. Safe to repeat at any time. A table that
cannot be compacted is left out, and fails the app when all else is done.
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
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.branches import load_branched_tables
from synapse_lakehouse.spark_app import SparkApp, run_spark_app

AT_ONCE = 4


def maintain_lake(app: SparkApp) -> None:
    """Compact every table, forget releases older than LAKEHOUSE_ERASURE_DAYS, sweep files that nothing refers to."""
    now, days = datetime.now(UTC), app.settings.lakehouse_erasure_days
    # Tables are rewritten and forgotten as they are published, not as the run's own branch has them.
    app.spark.conf.unset("spark.wap.branch")
    failures: list[Exception] = []
    if published := store.read_releases(app.catalog):
        branch = Run(f"{app.run.run_id} compaction", app.run.start, app.run.end).branch
        compacted, failures = maintenance.compact_and_publish(
            app.spark, app.catalog, published[-1], branch, app.lease.renew, app.report_progress
        )
        published += [compacted] if compacted else []
    old = now - timedelta(days=days)
    kept = maintenance.select_retained_releases(published, old)
    app.report_progress(f"the latest release stays readable, and those since {old:%Y-%m-%d %H:%M}Z")

    def tidy(name: str) -> maintenance.MaintenanceResult:
        pinned = {release.tables[name] for release in kept if name in release.tables}
        return maintenance.maintain_branched_table(app.spark, name, pinned, old)

    branched = [".".join(table.name()) for table in load_branched_tables(app.catalog)]
    commands = tables.load_table_or_none(app.catalog, COMMANDS_TABLE)
    unbranched = [*store.AUDIT_SCHEMAS, *([COMMANDS_TABLE] if commands else [])]
    heard_days = app.settings.lakehouse_replication_days
    if commands and commands.current_snapshot() and heard_days:
        maintenance.delete_old_commands(app.spark, now - timedelta(days=heard_days))
    # With 0 days files of any age are swept: they must not be another run's.
    app.lease.renew()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # All are begun before one may fail.
        work = [
            pool.map(tidy, branched),
            pool.map(partial(maintenance.maintain_unbranched_table, app.spark), unbranched),
        ]
        done = [*chain(*work)]
    lease.trim_lease_log(app.catalog, now - maintenance.LEASE_LOG)
    total = sum(done, start=maintenance.MaintenanceResult())
    app.report_progress(
        f"{total.snapshots} snapshots, {total.refs} tags and branches given up; {total.files:,} files deleted, "
        f"{total.strays} of them strays, {total.bytes / 1e6:,.1f} MB"
    )
    if failures:
        raise failures[0]


if __name__ == "__main__":
    run_spark_app(__doc__, maintain_lake)
