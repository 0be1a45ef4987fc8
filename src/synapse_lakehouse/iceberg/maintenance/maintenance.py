"""Maintain the lake's tables: merge small files, expire snapshots that only old releases need, delete old commands.

The caller holds the lake lease, so no other process writes to branched tables. Processes append to audit tables without
the lease, so the maintenance of audit tables allows concurrent appends.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.lease import lease
from synapse_lakehouse.iceberg.maintenance import compaction
from synapse_lakehouse.iceberg.maintenance.expire_snapshots import expire_unbranched
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


def maintain_unbranched_table(spark: SparkSession, name: str) -> int:
    """Merge small files of an unbranched table and expire old snapshots; return the number of expired snapshots."""
    # The lease log is not compacted, because its newest snapshot records the lease.
    if name != lease.LEASES_TABLE:
        compaction.merge_small_files(spark, name)
    return expire_unbranched(load_iceberg_table(spark, name), datetime.now(UTC) - UNFINISHED)


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
