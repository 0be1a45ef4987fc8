"""Expire Iceberg snapshots, delete their files, and remove the branches and tags that point to them."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from synapse_lakehouse.iceberg.spark.session import iterate_java

_ATTEMPTS: Final = 5


def expire_branched(table: Any, pinned: Collection[int], old: datetime) -> tuple[int, int]:
    """Expire snapshots of a branched table; return the numbers of removed snapshots and refs (branches and tags).

    The snapshots ``pinned``, the head of main, and refs whose snapshot was written after ``old`` are retained.
    """
    head = table.currentSnapshot()
    retained = {*pinned} if head is None else {*pinned, int(head.snapshotId())}
    change, refs = table.manageSnapshots(), 0
    for ref, pointer in dict(table.refs()).items():
        snapshot_id = int(pointer.snapshotId())
        if snapshot_id in retained or _written_at(table.snapshot(snapshot_id)) > old:
            retained.add(snapshot_id)
        else:
            change = change.removeTag(ref) if pointer.isTag() else change.removeBranch(ref)
            refs += 1
    if refs:
        change.commit()
        table.refresh()
    expired = {int(snapshot.snapshotId()) for snapshot in iterate_java(table.snapshots())} - retained
    if expired:
        expiry = table.expireSnapshots().expireOlderThan(0)
        for snapshot_id in sorted(expired):
            expiry = expiry.expireSnapshotId(snapshot_id)
        expiry.commit()
    return len(expired), refs


def expire_unbranched(table: Any, before: datetime) -> int:
    """Expire snapshots that are older than ``before``, except the last snapshot; return their number."""
    for _ in range(_ATTEMPTS):
        table.refresh()
        count = _count_snapshots(table)
        try:
            table.expireSnapshots().expireOlderThan(int(before.timestamp() * 1000)).retainLast(1).commit()
        except Py4JJavaError as error:
            # Another process appended meanwhile, and Iceberg does not retry commits to the lease log.
            if "CommitFailedException" not in str(error):
                raise
        else:
            table.refresh()
            return count - _count_snapshots(table)
    return 0


def _count_snapshots(table: Any) -> int:
    return sum(1 for _ in iterate_java(table.snapshots()))


def _written_at(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(int(snapshot.timestampMillis()) / 1000, UTC)
