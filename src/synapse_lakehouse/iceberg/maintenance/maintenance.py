"""Maintain the files of the lake's tables: expire snapshots that only old releases need, delete orphan files.

The caller holds the lake lease, so no other process writes to branched tables. Processes append to audit tables without
the lease, so the maintenance of audit tables allows concurrent appends.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.lease import lease
from synapse_lakehouse.iceberg.maintenance import compaction
from synapse_lakehouse.iceberg.maintenance.expire_snapshots import expire_branched, expire_unbranched
from synapse_lakehouse.iceberg.maintenance.orphan_files import TableFile, delete_orphan_files, list_files
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table

UNFINISHED: Final = timedelta(hours=6)
"""Minimum age of deleted orphan files. Younger files may belong to an unfinished commit."""

LEASE_LOG: Final = timedelta(days=30)
"""Retention of the lease log."""


def select_retained_releases(published: Sequence[Release], since: datetime) -> list[Release]:
    """Return the releases that stay readable: the latest release, and those published after ``since``.

    :param published: all releases, oldest first.
    """
    return [release for release in published if release is published[-1] or release.published_at > since]


@dataclass(frozen=True)
class MaintenanceResult:
    """Numbers of removed snapshots, refs (tags and branches), orphan files, all files, and bytes."""

    snapshots: int = 0
    refs: int = 0
    orphan_files: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: "MaintenanceResult") -> "MaintenanceResult":
        return MaintenanceResult(*map(add, vars(self).values(), vars(other).values()))


def maintain_branched_table(
    spark: SparkSession, name: str, pinned: Collection[int], old: datetime
) -> MaintenanceResult:
    """Expire old snapshots of a branched table, then delete its orphan files.

    The snapshots ``pinned``, the head of main, and branches and tags that were written since ``old`` are retained.
    """
    table = load_iceberg_table(spark, name)
    before = list_files(table)
    snapshots, refs = expire_branched(table, pinned, old)
    orphan_files = delete_orphan_files(spark, table, max(old, datetime.now(UTC) - UNFINISHED))
    return _result(table, before, snapshots, refs, orphan_files)


def maintain_unbranched_table(spark: SparkSession, name: str) -> MaintenanceResult:
    """Merge small files of an unbranched table, expire all but its last snapshot, and delete orphan files."""
    # The lease log is not compacted, because its newest snapshot records the lease.
    if name != lease.LEASES_TABLE:
        compaction.merge_small_files(spark, name)
    table, limit = load_iceberg_table(spark, name), datetime.now(UTC) - UNFINISHED
    before = list_files(table)
    snapshots = expire_unbranched(table, limit)
    return _result(table, before, snapshots, 0, delete_orphan_files(spark, table, limit))


def delete_old_commands(spark: SparkSession, before: datetime) -> None:
    """Delete replication commands that are older than ``before``, but not the positions from which a tap resumes."""
    # Spark caches a table for half a minute, but taps continue to write to it.
    spark.catalog.refreshTable(COMMANDS_TABLE)
    old = f"received_at < timestamp '{before.astimezone(UTC):%Y-%m-%d %H:%M:%S}'"
    taps = spark.table(COMMANDS_TABLE).where("command = 'TAP'").groupBy("source", "dialect")
    last = taps.agg(f.max("received_at").alias("received_at")).where(old)
    retained = [f"timestamp '{row[0]}'" for row in last.select(f.col("received_at").cast("string")).collect()]
    but_last = f" and received_at not in ({', '.join(retained)})" if retained else ""
    spark.sql(f"delete from {COMMANDS_TABLE} where {old}{but_last}")  # noqa: S608


def _result(
    table: Any, before: Mapping[str, TableFile], snapshots: int, refs: int, orphan_files: int
) -> MaintenanceResult:
    deleted = before.keys() - list_files(table).keys()
    return MaintenanceResult(snapshots, refs, orphan_files, len(deleted), sum(before[path].bytes for path in deleted))
