"""Compact the tables of the latest release, and publish the result as a new release with the same rows."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release, ReleaseError
from synapse_lakehouse.iceberg.maintenance import compaction
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write.publish import append_release, fast_forward_main

_PARALLEL_TABLES: Final = 4


def compact_and_publish(
    spark: SparkSession,
    catalog: Catalog,
    retained: Sequence[Release],
    branch: str,
    require_lease: Callable[[], None],
    report_progress: Callable[[str], None],
) -> tuple[Release | None, list[Exception]]:
    """Compact the tables that need it, and publish them; return the new release (or None) and the failures.

    The new release has the rows of the latest release in other files, and its run, interval and positions. If the
    compaction of a table fails (damaged file, changed rows), the table stays as it is.

    :param retained: the releases that stay readable, the latest last.
    :param require_lease: function that raises if another run has taken the lake lease. That run may have published.
    """
    latest, compacted = retained[-1], dict[str, int]()
    failures: list[Exception] = []
    with ThreadPoolExecutor(_PARALLEL_TABLES) as pool:
        plans = {name: pool.submit(_plan, spark, name, retained) for name in sorted(latest.tables)}
    for name, plan in plans.items():
        try:
            if (options := plan.result()) is None:
                continue
            snapshot_id = compaction.compact_table(spark, name, latest.tables[name], branch, options)
        except (ReleaseError, Py4JJavaError, PySparkException) as failure:
            report_progress(f"{name} could not be compacted")
            failures.append(failure)
            continue
        if snapshot_id != latest.tables[name]:
            compacted[name] = snapshot_id
            report_progress(f"{name} compacted")
    if not compacted:
        return None, failures
    require_lease()
    # The ledger is written first. If main were at a snapshot that the ledger lacks, the next run would copy all rows.
    _correct_ledger(catalog, latest, compacted)
    for name in compacted:
        fast_forward_main(spark, name, branch, latest.tag)
    release = replace(
        latest,
        number=latest.number + 1,
        tables={**latest.tables, **compacted},
        published_at=datetime.now(UTC),
        accepted_at=latest.accepted_at,
    )
    require_lease()
    append_release(catalog, release)
    return release, failures


def _plan(spark: SparkSession, name: str, retained: Sequence[Release]) -> dict[str, str] | None:
    """Return the options of a table's compaction; None if the table needs no compaction.

    If an earlier compaction crashed before its release, main is at the compacted snapshot. The next run publishes this
    snapshot.
    """
    table, head = load_iceberg_table(spark, name), retained[-1].tables[name]
    current = table.currentSnapshot()
    if current is None or int(current.snapshotId()) != head:
        return None
    snapshots = (release.tables[name] for release in retained if name in release.tables)
    oldest = next(snapshot_id for snapshot_id in snapshots if table.snapshot(snapshot_id) is not None)
    return compaction.plan_compaction(spark, name, head, oldest)


def _correct_ledger(catalog: Catalog, release: Release, compacted: Mapping[str, int]) -> None:
    rows = [
        row | {"snapshot_id": compacted[name], "written_at": datetime.now(UTC)}
        for row in store.read_release_ledger(catalog, release)
        if (name := f"bronze.{row['table_name']}") in compacted
    ]
    if rows:
        store.append_audit_rows(catalog, "audit.ledger", rows)
