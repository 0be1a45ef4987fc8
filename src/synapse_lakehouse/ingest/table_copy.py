"""Copy one table to bronze, in four steps: start, plan, write the parts, finish."""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.iceberg.spark.worker_daemon import build_worker_environment
from synapse_lakehouse.iceberg.write.commits import CommitResult, PreparedCommit
from synapse_lakehouse.ingest.baseline import Baseline, PublishedTable, find_interrupted_baseline
from synapse_lakehouse.ingest.branch_table import BranchTable
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.read_plan import ReadExtent, ReadPart, ReadPlan, plan_growth, plan_read
from synapse_lakehouse.ingest.row_deletes import (
    FullCopyRequiredError,
    RowDeletes,
    find_deleted_keys,
    find_rows_to_delete,
)
from synapse_lakehouse.ingest.snapshot_session import SnapshotSession
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, WrittenPart, copy_chunks
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, count_pages
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows, count_rows, read_heap_file
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition


def copy_in_worker(spark: SparkSession, chunks: Sequence[ReadChunk]) -> list[WrittenPart]:
    """Run :func:`copy_chunks` in one of Spark's Python workers."""
    spark.sparkContext.environment |= build_worker_environment(copy_chunks.__module__)
    (written,) = spark.sparkContext.parallelize([list(chunks)], 1).map(copy_chunks).collect()
    return written


@dataclass(frozen=True)
class WrittenGrowth:
    """A file with the new pages of a table, and its prepared commit, which is used if no other row changed."""

    part: ReadPart
    commit: PreparedCommit | None


@dataclass(frozen=True)
class StartedCopy:
    """A table, and the content on which its copy builds; without it, all rows are copied.

    * ``is_resumed``: an interrupted attempt left that content on the branch; otherwise it is published.
    * ``growth``: the pages at the end of the table that are read while the source counts, if there are any.
    """

    target: BranchTable
    base: Baseline | None
    is_resumed: bool
    growth: ReadPart | None

    def count(self, connection: Connection) -> RowCounts:
        """Count the source's rows, and with a baseline the changed rows; ``connection`` sees the snapshot."""
        if self.base is None:
            return RowCounts(count_rows(connection, self.target.table), 0, None)
        before = self.growth.pages[0] if self.growth else None
        return count_changed_rows(connection, self.target.table, self.base.since, before)

    def prepare_growth(self, part: ReadPart) -> WrittenGrowth:
        """Prepare the commit of ``part``, which is :attr:`growth` with the file that contains it."""
        if not self.base or not part.written or not part.written.paths:
            return WrittenGrowth(part, None)
        parent_id = self.base.snapshot_id
        commit = self.target.prepare_commit(part.written.paths, WHOLE_TABLE, is_first=True, parent_id=parent_id)
        return WrittenGrowth(part, commit)

    def plan(self, counts: RowCounts | None, growth: WrittenGrowth | None = None) -> "PlannedCopy":
        """Plan the parts to read, and reset the run's branch to the content to which they are added.

        :param counts: what :meth:`count` returned; without a baseline, the rows may be counted later.
        """
        counts = counts or RowCounts(0, 0, None)
        part = growth.part if growth else self.growth
        plan = plan_read(self.base, self.target.heap.pages, counts.rows, counts.changed, counts.places, part)
        if plan.extent in (ReadExtent.FULL, ReadExtent.RESUMED) or (plan.extent is ReadExtent.NONE and self.is_resumed):
            at = plan.base or self.target.main
            self.target.reset_branch(at.snapshot_id if at else None)
        elif plan.extent is ReadExtent.NONE and self.target.app.run.branch in self.target.lake.refs():
            self.target.reset_branch(None)
        return PlannedCopy(self, plan, counts.rows, growth.commit if growth else None)


def start_copy(
    session: SnapshotSession,
    table: Table,
    published: PublishedTable,
    read_valid_positions: Callable[[], Collection[WalPosition]],
) -> StartedCopy:
    """Start from the content of ``table`` that an interrupted attempt left on the branch, or from published content."""
    heap = read_heap_file(session.connection, table)
    target = BranchTable(session.app, session.connection, session.snapshot, table, heap, published.table)
    interrupted = find_interrupted_baseline(
        target.lake, session.app.run.branch, table, heap, session.snapshot, read_valid_positions, target.count_rows
    )
    base = interrupted or published.find_baseline(table, session.snapshot)
    return StartedCopy(target, base, interrupted is not None, plan_growth(base, heap.pages))


@dataclass(frozen=True)
class WrittenParts:
    """The parts of a table that are written, and the last commit of whole pages."""

    progress: CopyProgress
    parts: tuple[tuple[ReadPart, WrittenPart], ...] = ()
    commit: CommitResult | None = None
    rows_committed: int = 0

    @property
    def rows(self) -> int:
        """Number of rows that were read."""
        return sum(written.rows for _, written in self.parts)


@dataclass(frozen=True)
class PlannedCopy:
    """A copy with its read plan. ``rows``: rows of the source, 0 if they are not counted yet."""

    started: StartedCopy
    plan: ReadPlan
    rows: int
    growth: PreparedCommit | None

    @property
    def nothing_written(self) -> WrittenParts:
        """The written parts at the start: none."""
        pages = self.started.target.heap.pages
        return WrittenParts(CopyProgress(sum(count_pages(part.pages, pages) for part in self.plan.parts)))

    def accept_part(
        self, done: WrittenParts, part: ReadPart, written: WrittenPart, expected_rows: int | None
    ) -> WrittenParts:
        """Return ``done`` with one more part. Whole pages are committed at once, so that a resumed run skips them."""
        target, commit = self.started.target, None
        if part.since is None and not self.plan.base and not done.parts:
            commit = target.replace_content(written.paths, part.pages)
        elif part.since is None and written.path:
            commit = target.prepare_commit(written.paths, part.pages, is_first=False).commit()
        expected_rows = expected_rows if self.plan.extent is ReadExtent.FULL else None
        progress = done.progress.advance(written, count_pages(part.pages, target.heap.pages), expected_rows)
        rows = done.rows_committed + (commit.rows_added if commit else 0)
        return WrittenParts(progress, (*done.parts, (part, written)), commit or done.commit, rows)

    def finish(self, done: WrittenParts) -> "FinishedCopy":
        """Commit the changed rows after the last part, and find the rows that the source no longer has."""
        started, target, growth = self.started, self.started.target, self.growth
        deletes, commit, rows_written = RowDeletes({}, 0, None), done.commit, done.rows_committed
        if self.plan.base and done.parts:
            try:
                paths = [path for _, written in done.parts for path in written.paths]
                deletes = find_rows_to_delete(
                    target.app.spark, target.connection, target.table, target.lake, self.plan.base, paths, self.rows,
                    done.rows,
                )  # fmt: skip
            except FullCopyRequiredError as reason:
                target.app.report_progress(f"{target.name} is copied as a whole: {reason}")
                return self._copy_all_rows()
            if growth and not deletes.places and len(self.plan.parts) == 1 and self.plan.parts[0].written:
                commit, growth = growth.commit(), None
            else:
                commit = self._commit_changes(self.plan.base, done, deletes)
            rows_written += commit.rows_added
        if growth:
            growth.abandon()
        if commit is None:
            assert self.plan.base
            commit = target.describe_snapshot(self.plan.base.snapshot_id)
        deleted, rows_deleted = deletes.deleted, deletes.rows_deleted
        if target.main and (started.is_resumed or self.plan.extent is ReadExtent.FULL):
            keys = find_deleted_keys(target.app.spark, target.table, target.main.snapshot_id, commit.snapshot_id)
            rows_deleted = keys.count()
            deleted = keys if rows_deleted else None
        return FinishedCopy(self, done, commit, rows_written, deletes.outdated, rows_deleted, deleted)

    def _commit_changes(self, base: Baseline, done: WrittenParts, deletes: RowDeletes) -> CommitResult:
        changes = [path for part, written in done.parts if part.since is not None for path in written.paths]
        parent_id = base.snapshot_id if self.plan.extent is ReadExtent.CHANGED else None
        prepared = self.started.target.prepare_commit(
            changes, WHOLE_TABLE, is_first=True, deletes=deletes.places, parent_id=parent_id
        )
        return prepared.commit()

    def _copy_all_rows(self) -> "FinishedCopy":
        started, target = replace(self.started, base=None, growth=None), self.started.target
        planned = replace(started.plan(RowCounts(self.rows, 0, None)), growth=self.growth)
        done = planned.nothing_written
        for part in planned.plan.parts:
            (written,) = copy_in_worker(target.app.spark, [target.chunk(part)])
            done = planned.accept_part(done, part, written, self.rows)
            target.app.report_progress(f"{target.name}: {done.progress}")
        return planned.finish(done)


@dataclass(frozen=True)
class FinishedCopy:
    """A table that is up to the source's snapshot on the run's branch, as ``commit`` left it.

    ``deleted``: keys of the published table that the source no longer has, if there are any.
    """

    planned: PlannedCopy
    done: WrittenParts
    commit: CommitResult
    rows_written: int
    rows_replaced: int
    rows_deleted: int
    deleted: DataFrame | None

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
            **_hashes([written for _, written in parts]),
            "ranges": [
                {"first_page": part.pages[0], "last_page": part.pages[1], "rows": written.rows} | _hashes([written])
                for part, written in parts
            ],
            "rows_replaced": self.rows_replaced,
            "rows_deleted": self.rows_deleted,
            "files": self.commit.files,
            "bytes": self.commit.bytes,
            "seconds": sum(written.seconds for _, written in parts),
            "snapshot_id": self.commit.snapshot_id,
            "written_at": datetime.now(UTC),
            "heap_pages": target.heap.pages,
        }


class TableCopy:
    """A planned copy while several readers write its parts. ``rows_source``: rows of the source, once counted."""

    def __init__(self, planned: PlannedCopy) -> None:
        self.planned, self.target = planned, planned.started.target
        self.rows_source = planned.rows
        self._done = planned.nothing_written
        self._lock = threading.Lock()
        self.finished = None if planned.plan.parts else planned.finish(self._done)

    def accept_part(self, written: WrittenPart, part: ReadPart) -> CopyProgress:
        """Add a part, and finish the table after the last one. Returns the progress."""
        with self._lock:
            done = self._done = self.planned.accept_part(self._done, part, written, self.rows_source)
        if done.progress.is_finished:
            self.finished = self.planned.finish(done)
        return done.progress


def _hashes(written: Sequence[WrittenPart]) -> dict[str, str]:
    """Return the content hashes of all rows: as received, and as stored in the files."""
    received, stored = (part.hash_received for part in written), (part.hash_stored for part in written)
    return {"hash_read": f"{combine_hashes(received):016x}", "hash_written": f"{combine_hashes(stored):016x}"}
