"""Copy one table to bronze, in four steps: start, plan, write the parts, finish."""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import SparkSession

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.iceberg.catalog import aws_keys
from synapse_lakehouse.iceberg.write.commits import CommitResult, describe_snapshot
from synapse_lakehouse.ingest.baseline import Baseline, PublishedTable, find_interrupted_baseline
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.copy_target import CopyTarget
from synapse_lakehouse.ingest.read_plan import ReadExtent, ReadPart, ReadPlan, plan_read
from synapse_lakehouse.ingest.row_deletes import DeletedRows, FullCopyRequiredError, delete_rows, find_deleted_keys
from synapse_lakehouse.ingest.snapshot_session import SnapshotSession
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, WrittenPart, copy_chunks
from synapse_lakehouse.postgres.rows.heap import read_heap
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows, count_rows
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition

MAX_COMMITS: Final = 64
"""Approximate maximum of commits per copy of a table. Each commit adds an Iceberg snapshot to the table's metadata."""


def copy_in_worker(spark: SparkSession, chunks: Sequence[ReadChunk]) -> list[WrittenPart]:
    """Run :func:`copy_chunks` in one of Spark's Python workers."""
    (written,) = spark.sparkContext.parallelize([list(chunks)], 1).map(_copy_with_aws_keys).collect()
    return written


def _copy_with_aws_keys(chunks: Sequence[ReadChunk]) -> list[WrittenPart]:
    # A worker inherits the AWS keys from the driver, under other names.
    aws_keys.restore_aws_keys()
    return copy_chunks(chunks)


@dataclass(frozen=True)
class StartedCopy:
    """A table to copy. ``base``: the content on which the copy builds; None: all rows are copied.

    ``is_resumed``: whether an interrupted run left this content on the branch. If not, it is the published content.
    """

    target: CopyTarget
    base: Baseline | None
    is_resumed: bool

    def count(self, connection: Connection) -> RowCounts:
        """Count the source's rows, and with a baseline the changed rows; ``connection`` sees the snapshot."""
        if self.base is None:
            return RowCounts(count_rows(connection, self.target.table), 0, None)
        return count_changed_rows(connection, self.target.table, self.base.since)

    def plan(self, counts: RowCounts | None) -> "PlannedCopy":
        """Plan the parts to read, and set the run's branch to the Iceberg snapshot from which the copy starts.

        The branch is removed if there is no such snapshot, or if no part is to be read and no copy was interrupted.

        :param counts: result of :meth:`count`; None if the rows are counted later. In this case, all rows are read.
        """
        counts = counts or RowCounts(0, 0, None)
        target = self.target
        plan = plan_read(self.base, target.heap, counts.rows, counts.changed, counts.ctids)
        if plan.extent is not ReadExtent.NONE or self.is_resumed:
            at = plan.base or target.main
            target.set_or_remove_branch(at.snapshot_id if at else None)
        elif target.app.run.branch in target.lake.refs():
            target.set_or_remove_branch(None)
        return PlannedCopy(self, plan, counts.rows)


def start_copy(
    session: SnapshotSession,
    table: Table,
    published: PublishedTable,
    read_valid_positions: Callable[[], Collection[WalPosition]],
) -> StartedCopy:
    """Start from the content of ``table`` that an interrupted run left on the branch, or from published content."""
    source = session.get_exported(table.database)
    heap, snapshot = read_heap(source.connection, table), source.snapshot
    target = CopyTarget(session.app, source.connection, snapshot, table, heap, published.table)
    interrupted = find_interrupted_baseline(
        target.lake, session.app.run.branch, table, heap, snapshot, read_valid_positions, target.count_rows
    )
    return StartedCopy(
        target, interrupted or published.find_baseline(table, snapshot), is_resumed=interrupted is not None
    )


@dataclass(frozen=True)
class WrittenParts:
    """The parts of a table that are written, and the last commit of whole pages.

    ``uncommitted``: the parts since that commit, which the next commit adds to the branch.
    """

    progress: CopyProgress
    parts: tuple[tuple[ReadPart, WrittenPart], ...] = ()
    uncommitted: tuple[tuple[ReadPart, WrittenPart], ...] = ()
    commit: CommitResult | None = None
    rows_committed: int = 0

    @property
    def rows(self) -> int:
        """Number of rows that were read."""
        return sum(written.rows for _, written in self.parts)

    def list_files(self, *, are_changes: bool) -> list[str]:
        """Return the files with changed rows, or those with whole pages."""
        return [
            path for part, written in self.parts if (part.since is not None) is are_changes for path in written.paths
        ]


@dataclass(frozen=True)
class PlannedCopy:
    """A copy with its read plan. ``rows``: rows of the source, 0 if they are not counted yet."""

    started: StartedCopy
    plan: ReadPlan
    rows: int

    @property
    def nothing_written(self) -> WrittenParts:
        """The written parts at the start: none."""
        heap = self.started.target.heap
        return WrittenParts(CopyProgress(sum(heap.count_pages(part.pages) for part in self.plan.parts)))

    def accept_part(
        self, parts: WrittenParts, part: ReadPart, written: WrittenPart, expected_rows: int | None
    ) -> WrittenParts:
        """Return ``parts`` with one more part, and commit whole pages now and then, so that a later run can resume."""
        expected_rows = expected_rows if self.plan.extent is ReadExtent.FULL else None
        progress = parts.progress.advance(written, self.started.target.heap.count_pages(part.pages), expected_rows)
        uncommitted = (*parts.uncommitted, *([(part, written)] if part.since is None else []))
        parts = replace(parts, progress=progress, parts=(*parts.parts, (part, written)), uncommitted=uncommitted)
        is_last = len(parts.parts) == len(self.plan.parts)
        if not uncommitted or (len(uncommitted) * MAX_COMMITS < len(self.plan.parts) and not is_last):
            return parts
        commit = self._commit_pages(parts)
        return replace(parts, uncommitted=(), commit=commit, rows_committed=parts.rows_committed + commit.rows_added)

    def _commit_pages(self, parts: WrittenParts) -> CommitResult:
        target = self.started.target
        pages = [part.pages for part, _ in parts.uncommitted]
        paths = [path for _, written in parts.uncommitted for path in written.paths]
        if self.plan.base or parts.commit:
            return target.append_files(paths, pages, is_first=False)
        return target.replace_content(paths, pages)

    def finish(self, parts: WrittenParts) -> "FinishedCopy":
        """After the last part, delete the rows of the baseline that are not current, and commit the changed rows."""
        target, base = self.started.target, self.plan.base
        deleted, commit, rows_written = DeletedRows(), parts.commit, parts.rows_committed
        if base and parts.parts:
            changes = parts.list_files(are_changes=True)
            try:
                deleted = delete_rows(target, base, parts.list_files(are_changes=False), changes, parts.rows, self.rows)
            except FullCopyRequiredError as reason:
                target.app.report_progress(f"{target.name} is copied as a whole: {reason}")
                return self._copy_all_rows()
            commit = target.append_files(changes, [WHOLE_TABLE], is_first=True)
            rows_written += commit.rows_added
        if commit is None:
            assert base
            commit = describe_snapshot(target.lake, base.snapshot_id)
        if target.main and (self.started.is_resumed or self.plan.extent is ReadExtent.FULL):
            keys = find_deleted_keys(target.app.spark, target.table, target.main.snapshot_id, commit.snapshot_id)
            missing = keys.count()
            deleted = replace(deleted, missing=missing, missing_keys=keys if missing else None)
        return FinishedCopy(self, parts, commit, rows_written, deleted)

    def _copy_all_rows(self) -> "FinishedCopy":
        started, target = replace(self.started, base=None), self.started.target
        planned = started.plan(RowCounts(self.rows, 0, None))
        parts = planned.nothing_written
        for part in planned.plan.parts:
            (written,) = copy_in_worker(target.app.spark, [target.chunk(part)])
            parts = planned.accept_part(parts, part, written, self.rows)
            target.app.report_progress(f"{target.name}: {parts.progress}")
        return planned.finish(parts)


@dataclass(frozen=True)
class FinishedCopy:
    """A table that has the content of the PostgreSQL snapshot on the run's branch. ``commit``: the last commit."""

    planned: PlannedCopy
    done: WrittenParts
    commit: CommitResult
    rows_written: int
    deleted: DeletedRows

    def ledger_row(self, rows_source: int) -> dict[str, Any]:
        """Return the table's row of ``audit.ledger``."""
        target, parts = self.planned.started.target, self.done.parts
        return {
            "branch": target.app.run.branch,
            "table_name": target.table.name,
            "load": target.table.load.value,
            "extent": self.planned.plan.extent.value,
            "statement": target.snapshot.fingerprints[target.table.name],
            "rows_source": rows_source,
            "rows_read": self.done.rows,
            "rows_written": self.rows_written,
            **hash_parts([written for _, written in parts]),
            "ranges": [
                {"first_page": part.pages[0], "last_page": part.pages[1], "rows": written.rows} | hash_parts([written])
                for part, written in parts
            ],
            "rows_replaced": self.deleted.outdated,
            "rows_deleted": self.deleted.missing,
            "files": self.commit.files,
            "bytes": self.commit.bytes,
            "seconds": sum(written.seconds for _, written in parts),
            "snapshot_id": self.commit.snapshot_id,
            "written_at": datetime.now(UTC),
            "heap_pages": target.heap.pages,
        }


class TableCopy:
    """A planned copy while several readers write its parts. ``rows_source``: rows in the source, 0 until counted."""

    def __init__(self, planned: PlannedCopy) -> None:
        self.planned, self.target = planned, planned.started.target
        self.rows_source = planned.rows
        self._done = planned.nothing_written
        self._lock = threading.Lock()
        self.finished = None if planned.plan.parts else planned.finish(self._done)

    def accept_part(self, written: WrittenPart, part: ReadPart) -> CopyProgress:
        """Add a part, and finish the table after the last part; return the progress."""
        with self._lock:
            done = self._done = self.planned.accept_part(self._done, part, written, self.rows_source)
        if done.progress.is_finished:
            self.finished = self.planned.finish(done)
        return done.progress


def hash_parts(written: Sequence[WrittenPart]) -> dict[str, str]:
    """Return the content hashes of all rows: as received, and as stored in the files."""
    received, stored = (part.hash_received for part in written), (part.hash_stored for part in written)
    return {"hash_read": f"{combine_hashes(received):016x}", "hash_written": f"{combine_hashes(stored):016x}"}
