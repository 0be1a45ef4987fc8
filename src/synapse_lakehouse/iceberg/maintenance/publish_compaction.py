"""Compact the tables of the latest release, and publish the result as a new release with the same rows."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release, ReleaseError
from synapse_lakehouse.iceberg.maintenance import compaction
from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write.publish import append_release, fast_forward_main


def compact_and_publish(
    spark: SparkSession,
    catalog: Catalog,
    latest: Release,
    branch: str,
    require_lease: Callable[[], None],
    report_progress: Callable[[str], None],
) -> tuple[Release | None, list[Exception]]:
    """Compact the tables that need it, and publish them; return the new release (or None) and the failures.

    The new release has the rows of ``latest`` in other files, and its run, interval and positions. If a run crashed
    while it published, ``main`` of a table may not be at the release's snapshot. Such a table is skipped, and the next
    run publishes it. If the compaction of a table fails (damaged file, changed rows), the table stays as it is.

    :param require_lease: function that raises if another run has taken the lake lease. That run may have published.
    """
    compacted: dict[str, int] = {}
    failures: list[Exception] = []
    for name, head in sorted(latest.tables.items()):
        try:
            if _head(spark, name) != head or not compaction.count_files(spark, name, head).need_compaction:
                continue
            snapshot_id = compaction.compact_table(spark, name, head, branch)
        except (ReleaseError, Py4JJavaError) as failure:
            report_progress(f"{name} could not be compacted")
            failures.append(failure)
            continue
        if snapshot_id != head:
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
        accepted_at=latest.audited_until,
    )
    require_lease()
    append_release(catalog, release)
    return release, failures


def _head(spark: SparkSession, name: str) -> int | None:
    current = load_iceberg_table(spark, name).currentSnapshot()
    return None if current is None else int(current.snapshotId())


def _correct_ledger(catalog: Catalog, release: Release, compacted: Mapping[str, int]) -> None:
    rows = [
        row | {"snapshot_id": compacted[name], "written_at": datetime.now(UTC)}
        for row in store.read_release_ledger(catalog, release)
        if (name := f"bronze.{row['table_name']}") in compacted
    ]
    if rows:
        store.append_audit_rows(catalog, "audit.ledger", rows)
