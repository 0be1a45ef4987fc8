"""Look after the lake's files under its lease: compact, publish that, then delete what only old releases hold.

Works on what is published, whatever became of the run that it belongs to. Safe to repeat at any time.
"""

from datetime import UTC, datetime, timedelta

from synapse_lakehouse.app import SparkApp, main
from synapse_lakehouse.lake import audit, housekeeping, lease
from synapse_lakehouse.lake.branches import branched_tables
from synapse_lakehouse.run import Run


def maintain_lake(app: SparkApp) -> None:
    """Compact every table, forget releases older than LAKEHOUSE_ERASURE_DAYS, sweep files that nothing refers to."""
    now, days = datetime.now(UTC), app.settings.lakehouse_erasure_days
    old, unfinished = now - timedelta(days=days), now - housekeeping.UNFINISHED
    # Tables are rewritten and forgotten as they are published, not as the run's own branch has them.
    app.spark.conf.unset("spark.wap.branch")
    branched = [".".join(table.name()) for table in branched_tables(app.catalog)]
    everything = [*branched, *audit.TABLES]
    had = [housekeeping.size(app.spark, name) for name in everything]

    if published := audit.releases(app.catalog):
        branch = Run(f"{app.run.run_id} compaction", app.run.start, app.run.end).branch
        compacted = housekeeping.compact(app.spark, app.catalog, published[-1], branch, app.progress)
        published += [compacted] if compacted else []
    kept = housekeeping.kept_releases(published, days, now)
    app.progress(f"{len(kept)} of {len(published)} releases stay readable, those of the last {days} days")

    snapshots = refs = strays = 0
    for name in branched:
        forgotten = housekeeping.forget(app.spark, name, {one.tables[name] for one in kept if name in one.tables}, old)
        snapshots, refs = snapshots + forgotten[0], refs + forgotten[1]
        strays += housekeeping.sweep(app.spark, name, max(old, unfinished))
    for name in audit.TABLES:
        snapshots += housekeeping.forget_past(app.spark, name, unfinished)
        strays += housekeeping.sweep(app.spark, name, unfinished)
    lease.trim(app.catalog, now - housekeeping.LEASE_LOG)

    files, size = (
        sum(one[part] for one in had) - sum(housekeeping.size(app.spark, name)[part] for name in everything)
        for part in (0, 1)
    )
    app.progress(f"{snapshots} snapshots, {refs} tags and branches given up, {strays} stray files swept")
    app.progress(f"{files:,} files and {size / 1e6:,.1f} MB less than before")


if __name__ == "__main__":
    main(__doc__, maintain_lake)
