"""Maintain the files of the lake: compact tables, publish the result, then delete files that only old releases need.

The app works on published content and can be repeated at any time. If a table cannot be compacted, the app skips the
table, does all other work, and then fails.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE, is_unbranched, remove_secrets
from synapse_lakehouse.iceberg.lease import lease
from synapse_lakehouse.iceberg.maintenance import maintenance
from synapse_lakehouse.iceberg.maintenance.expire_snapshots import expire_branched
from synapse_lakehouse.iceberg.maintenance.orphan_files import delete_orphan_files
from synapse_lakehouse.iceberg.maintenance.publish_compaction import compact_and_publish
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write import tables
from synapse_lakehouse.iceberg.write.branches import list_run_tables
from synapse_lakehouse.spark_app import SparkApp, run_spark_app

PARALLEL_TABLES = 4


def maintain_lake(app: SparkApp) -> None:
    """Compact every table, expire releases older than LAKEHOUSE_ERASURE_DAYS, delete orphan files."""
    now, days = datetime.now(UTC), app.settings.lakehouse_erasure_days
    # Maintenance works on main, not on the run's own branch.
    app.spark.conf.unset("spark.wap.branch")
    failures: list[Exception] = []
    published, expiry = store.read_releases(app.catalog), now - timedelta(days=days)
    if published:
        branch = Run(f"{app.run.run_id} compaction", app.run.start, app.run.end).branch
        retained = maintenance.select_retained_releases(published, expiry)
        compacted, failures = compact_and_publish(
            app.spark, app.catalog, retained, branch, app.lease.renew, app.report_progress
        )
        published += [compacted] if compacted else []
    retained = maintenance.select_retained_releases(published, expiry)
    app.report_progress(f"retained: the latest release, and all releases since {expiry:%Y-%m-%d %H:%M}Z")
    commands = tables.load_table_or_none(app.catalog, COMMANDS_TABLE)
    command_days = app.settings.lakehouse_replication_days
    if commands and commands.current_snapshot() and command_days:
        maintenance.delete_old_commands(app.spark, now - timedelta(days=command_days))
    app.lease.renew()
    unfinished = now - maintenance.UNFINISHED
    # With LAKEHOUSE_ERASURE_DAYS=0, even new orphan files are deleted. So no other run may write files now.
    limits = dict.fromkeys(list_run_tables(app.catalog), max(expiry, unfinished))
    limits |= dict.fromkeys([*store.AUDIT_SCHEMAS, *([COMMANDS_TABLE] if commands else [])], unfinished)
    failures += expire_tables(app, limits, retained, expiry)
    lease.trim_lease_log(app.catalog, now - maintenance.LEASE_LOG)
    app.lease.renew()
    io_properties = remove_secrets(app.catalog.properties | app.settings.lakehouse_catalog_properties)
    deleted = delete_orphan_files(app.spark, io_properties, limits)
    app.report_progress(f"{deleted.files:,} orphan files deleted, {deleted.bytes / 1e6:,.1f} MB")
    for failure in [*failures, *deleted.failures]:
        raise failure


def expire_tables(
    app: SparkApp, names: Iterable[str], retained: Sequence[Release], expiry: datetime
) -> list[Exception]:
    """Expire snapshots of all tables, merge small files of unbranched tables; return the failures."""

    def expire(name: str) -> tuple[int, int]:
        if is_unbranched(name):
            return maintenance.maintain_unbranched_table(app.spark, name), 0
        pinned = {release.tables[name] for release in retained if name in release.tables}
        return expire_branched(load_iceberg_table(app.spark, name), pinned, expiry)

    with ThreadPoolExecutor(PARALLEL_TABLES) as pool:
        work = [pool.submit(expire, name) for name in names]
    failures = [error for job in work if isinstance(error := job.exception(), Exception)]
    results = [job.result() for job in work if job.exception() is None]
    snapshots, refs = (sum(numbers) for numbers in zip((0, 0), *results, strict=True))
    app.report_progress(f"{snapshots} snapshots, {refs} tags and branches deleted")
    return failures


if __name__ == "__main__":
    run_spark_app(__doc__, maintain_lake)
