"""Maintain the lake's tables: compact files, expire snapshots that only old releases need, delete orphan files.

The caller holds the lake lease, so no other process writes to branched tables. Audit tables are written without the
lease; their maintenance allows concurrent appends.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.audit import store
from synapse_lakehouse.audit.releases import Release, ReleaseError
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog.catalog import COMMANDS_TABLE
from synapse_lakehouse.iceberg.lease import lease
from synapse_lakehouse.iceberg.maintenance import compaction
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java, load_iceberg_table
from synapse_lakehouse.iceberg.write.publish import append_release, fast_forward_main

UNFINISHED: Final = timedelta(hours=6)
"""Younger unreferenced files may belong to a commit that is not finished."""

LEASE_LOG: Final = timedelta(days=30)
"""Retention of the lease log."""

_ATTEMPTS: Final = 5


class SharedWarehouseError(LakehouseError):
    """The folder of a table contains files of another table; no file was deleted."""

    def __init__(self, metadata: str) -> None:
        super().__init__(
            f"{metadata} is of another table than the lake's in that folder, so no file was swept there: it seems that "
            "two lakes have one warehouse, and what is a stray to one may be data of the other. Give each a "
            "LAKEHOUSE_WAREHOUSE of its own. If there is no other lake, as after a table was dropped and made anew, "
            "delete that file and clear the task."
        )


def select_retained_releases(published: Sequence[Release], since: datetime) -> list[Release]:
    """The releases that stay readable: the latest one, and those published after ``since``.

    :param published: all releases, oldest first.
    """
    return [one for one in published if one is published[-1] or one.published_at > since]


def compact_and_publish(
    spark: SparkSession,
    catalog: Catalog,
    latest: Release,
    branch: str,
    require_lease: Callable[[], None],
    tell: Callable[[str], None],
) -> tuple[Release | None, list[Exception]]:
    """Compact the tables that gain from it and publish them as a new release; that release (or None) and the failures.

    The release has the content of ``latest`` in other files, and its run, interval and positions. A table whose main is
    not at the release's snapshot (a run crashed while it published) is left to the next run. A table that cannot be
    compacted, because a file is damaged or its content would change, stays as it is; the others are compacted.

    :param require_lease: raises where the lake lease was lost: somebody may have published since.
    """
    rewritten: dict[str, int] = {}
    failures: list[Exception] = []
    for name, head in sorted(latest.tables.items()):
        try:
            if _head(spark, name) != head or not compaction.count_files(spark, name, head).need_compaction:
                continue
            snapshot_id = compaction.compact_table(spark, name, head, branch)
        except (ReleaseError, Py4JJavaError) as failure:
            tell(f"{name} could not be compacted")
            failures.append(failure)
            continue
        if snapshot_id != head:
            rewritten[name] = snapshot_id
            tell(f"{name} compacted")
    if not rewritten:
        return None, failures
    require_lease()
    # First, as the next copy goes on from the snapshot in the ledger, if main is at it; else it copies the table whole.
    _correct_ledger(catalog, latest, rewritten)
    for name in rewritten:
        fast_forward_main(spark, name, branch, latest.tag)
    compacted = replace(
        latest,
        number=latest.number + 1,
        tables={**latest.tables, **rewritten},
        published_at=datetime.now(UTC),
        accepted_at=latest.audited_until,
    )
    require_lease()
    append_release(catalog, compacted)
    return compacted, failures


@dataclass(frozen=True)
class MaintenanceResult:
    """Numbers of removed snapshots, refs (tags and branches), files (orphan files among them: ``strays``) and bytes."""

    snapshots: int = 0
    refs: int = 0
    strays: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: "MaintenanceResult") -> "MaintenanceResult":
        return MaintenanceResult(*map(add, vars(self).values(), vars(other).values()))


def maintain_branched_table(
    spark: SparkSession, name: str, pinned: Collection[int], old: datetime
) -> MaintenanceResult:
    """Expire old snapshots of a branched table with their files, then delete its orphan files.

    Retained are the snapshots ``pinned``, the head of main, and branches and tags that were written since ``old``.
    """
    table = load_iceberg_table(spark, name)
    had = _listed(table)
    snapshots, refs = _forget(table, pinned, old)
    strays = _sweep(spark, table, max(old, datetime.now(UTC) - UNFINISHED))
    return _tidied(table, had, snapshots, refs, strays)


def delete_old_commands(spark: SparkSession, before: datetime) -> None:
    """Delete replication commands from before a time, except the last positions of each tap, from which it resumes."""
    # Spark caches tables for half a minute, in which taps continue to write.
    spark.catalog.refreshTable(COMMANDS_TABLE)
    old = f"received_at < timestamp '{before.astimezone(UTC):%Y-%m-%d %H:%M:%S}'"
    taps = spark.table(COMMANDS_TABLE).where("command = 'TAP'").groupBy("source", "dialect")
    last = taps.agg(f.max("received_at").alias("received_at")).where(old)
    kept = [f"timestamp '{row[0]}'" for row in last.select(f.col("received_at").cast("string")).collect()]
    but_last = f" and received_at not in ({', '.join(kept)})" if kept else ""
    spark.sql(f"delete from {COMMANDS_TABLE} where {old}{but_last}")  # noqa: S608


def maintain_unbranched_table(spark: SparkSession, name: str) -> MaintenanceResult:
    """Merge small files of an unbranched table, expire all but its last snapshot, and delete orphan files."""
    # The newest snapshot of the lease log records the lease, so it must not be replaced.
    if name != lease.LEASES_TABLE:
        compaction.merge_small_files(spark, name)
    table, before = load_iceberg_table(spark, name), datetime.now(UTC) - UNFINISHED
    had = _listed(table)
    snapshots = _forget_past(table, before)
    return _tidied(table, had, snapshots, 0, _sweep(spark, table, before))


def _tidied(table: Any, had: Mapping[str, "_File"], snapshots: int, refs: int, strays: int) -> MaintenanceResult:
    gone = had.keys() - _listed(table).keys()
    return MaintenanceResult(snapshots, refs, strays, len(gone), sum(had[path].bytes for path in gone))


def _forget(table: Any, pinned: Collection[int], old: datetime) -> tuple[int, int]:
    head = table.currentSnapshot()
    kept = {*pinned} if head is None else {*pinned, int(head.snapshotId())}
    change, refs = table.manageSnapshots(), 0
    for ref, pointer in dict(table.refs()).items():
        snapshot_id = int(pointer.snapshotId())
        if snapshot_id in kept or _written(table.snapshot(snapshot_id)) > old:
            kept.add(snapshot_id)
        else:
            change = change.removeTag(ref) if pointer.isTag() else change.removeBranch(ref)
            refs += 1
    if refs:
        change.commit()
        table.refresh()
    gone = {int(one.snapshotId()) for one in iterate_java(table.snapshots())} - kept
    if gone:
        expiry = table.expireSnapshots().expireOlderThan(0)
        for snapshot_id in sorted(gone):
            expiry = expiry.expireSnapshotId(snapshot_id)
        expiry.commit()
    return len(gone), refs


def _forget_past(table: Any, before: datetime) -> int:
    for _ in range(_ATTEMPTS):
        table.refresh()
        had = sum(1 for _ in iterate_java(table.snapshots()))
        try:
            table.expireSnapshots().expireOlderThan(int(before.timestamp() * 1000)).retainLast(1).commit()
        except Py4JJavaError as error:
            # Somebody appended meanwhile, and the log of the lease is never retried by itself.
            if "CommitFailedException" not in str(error):
                raise
        else:
            table.refresh()
            return had - sum(1 for _ in iterate_java(table.snapshots()))
    return 0


def _sweep(spark: SparkSession, table: Any, before: datetime) -> int:
    """Delete orphan files under the table's location that are older than ``before``; the number of deleted files.

    Deletes nothing if a referenced file is not listed: then the listed names are not reliable.

    :raises SharedWarehouseError: when there is metadata of another table, to which the files may belong.
    """
    listed, limit = _listed(table), int(before.timestamp() * 1000)
    old = {path for path, file in listed.items() if file.written_ms < limit}
    table.refresh()
    referred = {_plain(path) for path in _reachable(spark, table)}
    within = _plain(table.location()) + "/"
    expected = {path for path in referred if path.startswith(within)}
    if not expected <= listed.keys() and not expected <= _listed(table).keys():
        return 0
    for path in sorted(listed.keys() - referred):
        if path.endswith(".metadata.json") and _is_of_another(spark, table, listed[path].location):
            raise SharedWarehouseError(listed[path].location)
    for stray in old - referred:
        table.io().deleteFile(listed[stray].location)
    return len(old - referred)


def _is_of_another(spark: SparkSession, table: Any, metadata: str) -> bool:
    try:
        found = get_iceberg_class(spark, "TableMetadataParser").read(table.io(), metadata)
    except Py4JJavaError:
        # Half of a file, or gone meanwhile.
        return False
    return str(found.uuid()) != str(table.uuid())


def _head(spark: SparkSession, name: str) -> int | None:
    current = load_iceberg_table(spark, name).currentSnapshot()
    return None if current is None else int(current.snapshotId())


def _correct_ledger(catalog: Catalog, release: Release, rewritten: Mapping[str, int]) -> None:
    rows = [
        row | {"snapshot_id": rewritten[name], "written_at": datetime.now(UTC)}
        for row in store.read_release_ledger(catalog, release)
        if (name := f"bronze.{row['table_name']}") in rewritten
    ]
    if rows:
        store.append_audit_rows(catalog, "audit.ledger", rows)


def _written(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(int(snapshot.timestampMillis()) / 1000, UTC)


@dataclass(frozen=True)
class _File:
    location: str
    bytes: int
    written_ms: int


def _listed(table: Any) -> dict[str, _File]:
    """All files under the table's location."""
    listed = iterate_java(table.io().listPrefix(table.location()))
    files = (_File(str(one.location()), int(one.size()), int(one.createdAtMillis())) for one in listed)
    return {_plain(file.location): file for file in files}


def _reachable(spark: SparkSession, table: Any) -> Iterator[str]:
    """All files that a snapshot or the metadata of the table refers to."""
    util, manifests, seen = (
        get_iceberg_class(spark, "ReachableFileUtil"),
        get_iceberg_class(spark, "ManifestFiles"),
        set[str](),
    )
    yield from util.metadataFileLocations(table, False)
    yield from util.manifestListLocations(table)
    yield from util.statisticsFilesLocations(table)
    for snapshot in iterate_java(table.snapshots()):
        for manifest in iterate_java(snapshot.allManifests(table.io())):
            if manifest.path() not in seen:
                seen.add(manifest.path())
                yield manifest.path()
                yield from iterate_java(manifests.readPaths(manifest, table.io(), table.specs()))


def _plain(location: str) -> str:
    """A location without its scheme: Java writes file:/a where Python writes file:///a."""
    return re.sub(r"^[a-z0-9+.-]+:/*", "/", location, flags=re.IGNORECASE).rstrip("/")
