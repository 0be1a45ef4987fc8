"""Look after the lake's files: apply deletes to the bytes, merge small files, forget what only old releases hold.

Whoever calls this holds the lake lease, so nobody else writes to branched tables meanwhile. Audit tables are written
without it, and are handled so that this does no harm.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.lake import compaction
from synapse_lakehouse.lake.publishing import fast_forward, record
from synapse_lakehouse.lake.release import Release
from synapse_lakehouse.lake.session import each, iceberg_table

UNFINISHED: Final = timedelta(hours=6)
"""Files that nothing refers to may still be on their way into a table when they are younger."""

LEASE_LOG: Final = timedelta(days=30)
"""How long the log of who held the lease is kept."""

_ATTEMPTS: Final = 5


def kept_releases(published: Sequence[Release], days: int, now: datetime) -> list[Release]:
    """The releases that stay readable: the latest, and those published in the last ``days`` days.

    :param published: all releases, oldest first.
    """
    return [one for one in published if one is published[-1] or one.published_at > now - timedelta(days=days)]


def compact(
    spark: SparkSession, catalog: Catalog, latest: Release, branch: str, tell: Callable[[str], None]
) -> Release | None:
    """Compact the tables that gain from it and publish them as a new release; None if none does.

    The release is ``latest`` in other files: it keeps its run, interval and positions. A table whose main is not what
    that release says (a run died while it published) is left to the next run.

    :raises ReleaseError: when the content of a table would change; nothing is published then.
    """
    rewritten: dict[str, int] = {}
    for name, head in sorted(latest.tables.items()):
        if _head(spark, name) != head or not compaction.files(spark, name, head).need_compaction:
            continue
        snapshot_id = compaction.compact(spark, name, head, branch)
        if snapshot_id != head:
            rewritten[name] = snapshot_id
            tell(f"{name} compacted")
    if not rewritten:
        return None
    for name in rewritten:
        fast_forward(spark, name, branch, latest.tag)
    compacted = replace(
        latest,
        number=latest.number + 1,
        tables={**latest.tables, **rewritten},
        published_at=datetime.now(UTC),
    )
    record(catalog, compacted)
    return compacted


def forget(spark: SparkSession, name: str, pinned: Collection[int], before: datetime) -> tuple[int, int]:
    """Give up the snapshots of a branched table that no kept release pins: how many snapshots, and tags or branches.

    Kept besides ``pinned``: main's head, and branches and tags written since ``before``. Deletes the files of the rest.
    """
    table = iceberg_table(spark, name)
    if table.currentSnapshot() is None:
        return 0, 0
    kept = {*pinned, *_head_and_its_origin(table)}
    change, refs = table.manageSnapshots(), 0
    for ref, pointer in dict(table.refs()).items():
        snapshot_id = int(pointer.snapshotId())
        if snapshot_id in kept or _written(table.snapshot(snapshot_id)) > before:
            kept.add(snapshot_id)
        else:
            change = change.removeTag(ref) if pointer.isTag() else change.removeBranch(ref)
            refs += 1
    if refs:
        change.commit()
        table.refresh()
    gone = {int(one.snapshotId()) for one in each(table.snapshots())} - kept
    if gone:
        expiry = table.expireSnapshots().expireOlderThan(0)
        for snapshot_id in sorted(gone):
            expiry = expiry.expireSnapshotId(snapshot_id)
        expiry.commit()
    return len(gone), refs


def forget_past(spark: SparkSession, name: str, before: datetime) -> int:
    """Give up the snapshots of an unbranched table that are older than ``before``, its head excepted: how many.

    Rows stay: an append keeps all files of the snapshot before it.
    """
    for _ in range(_ATTEMPTS):
        table = iceberg_table(spark, name)
        had = sum(1 for _ in each(table.snapshots()))
        try:
            table.expireSnapshots().expireOlderThan(int(before.timestamp() * 1000)).retainLast(1).commit()
        except Py4JJavaError as error:
            if "CommitFailedException" not in str(error):
                raise
        else:
            table.refresh()
            return had - sum(1 for _ in each(table.snapshots()))
    return 0


def sweep(spark: SparkSession, name: str, before: datetime) -> int:
    """Delete files under a table's location that nothing refers to and that were written before ``before``: how many.

    Deletes nothing where a file that the table refers to is not found in its place: then names cannot be trusted.
    """
    table = iceberg_table(spark, name)
    limit = int(before.timestamp() * 1000)
    old = {_plain(one.location()): str(one.location()) for one in _listed(table) if one.createdAtMillis() < limit}
    table.refresh()
    referred = {_plain(path) for path in _reachable(spark, table)}
    within = _plain(table.location()) + "/"
    if {path for path in referred if path.startswith(within)} - {_plain(one.location()) for one in _listed(table)}:
        return 0
    strays = old.keys() - referred
    for stray in strays:
        table.io().deleteFile(old[stray])
    return len(strays)


def size(spark: SparkSession, name: str) -> tuple[int, int]:
    """Files under a table's location, and their bytes."""
    sizes = [int(one.size()) for one in _listed(iceberg_table(spark, name))]
    return len(sizes), sum(sizes)


def _head(spark: SparkSession, name: str) -> int | None:
    current = iceberg_table(spark, name).currentSnapshot()
    return None if current is None else int(current.snapshotId())


def _head_and_its_origin(table: Any) -> Iterator[int]:
    """Main's head and, if it came of compactions, these: a copy that goes on from it looks for what was compacted."""
    snapshot = table.currentSnapshot()
    yield int(snapshot.snapshotId())
    while snapshot.operation() == "replace" and snapshot.parentId() is not None:
        snapshot = table.snapshot(snapshot.parentId())
        if snapshot is None or snapshot.operation() != "replace":
            return
        yield int(snapshot.snapshotId())


def _written(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(int(snapshot.timestampMillis()) / 1000, UTC)


def _listed(table: Any) -> Iterator[Any]:
    return each(table.io().listPrefix(table.location()))


def _reachable(spark: SparkSession, table: Any) -> Iterator[str]:
    """Every file that any snapshot of a table, or its metadata, refers to."""
    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    util, seen = iceberg.ReachableFileUtil, set[str]()
    yield from util.metadataFileLocations(table, False)
    yield from util.manifestListLocations(table)
    yield from util.statisticsFilesLocations(table)
    for snapshot in each(table.snapshots()):
        for manifest in each(snapshot.allManifests(table.io())):
            if manifest.path() not in seen:
                seen.add(manifest.path())
                yield manifest.path()
                yield from each(iceberg.ManifestFiles.readPaths(manifest, table.io(), table.specs()))


def _plain(location: str) -> str:
    """A location without its scheme: Java and Python write file:/a and file:///a for the same place."""
    return re.sub(r"^[a-z0-9+.-]+:/*", "/", location, flags=re.IGNORECASE).rstrip("/")
