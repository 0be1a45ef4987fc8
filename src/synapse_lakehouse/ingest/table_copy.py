"""The copy of one table to bronze: baseline, counts, read plan, commits, ledger row."""

import threading
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.iceberg.catalog.catalog import remove_secrets
from synapse_lakehouse.iceberg.spark.worker_daemon import build_worker_environment
from synapse_lakehouse.iceberg.write.commits import (
    CommitResult,
    PreparedCommit,
    get_parquet_schema,
    prepare_row_change,
    replace_content,
    reset_branch,
    write_position_deletes,
)
from synapse_lakehouse.ingest.baseline import (
    Baseline,
    PublishedTable,
    build_snapshot_properties,
    find_interrupted_baseline,
)
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.read_plan import ReadExtent, ReadPart, ReadPlan, plan_growth, plan_read
from synapse_lakehouse.ingest.row_deletes import FullCopyRequiredError, find_deleted_keys, find_rows_to_delete
from synapse_lakehouse.postgres.connection import Connection, build_conninfo
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes
from synapse_lakehouse.postgres.rows.copy_to_parquet import ReadChunk, WrittenPart, copy_chunks
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange, count_pages
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows, count_rows, read_heap_file
from synapse_lakehouse.postgres.rows.select_sql import build_select
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition
from synapse_lakehouse.spark_app import SparkApp


def copy_in_worker(spark: SparkSession, chunks: Sequence[ReadChunk]) -> list[WrittenPart]:
    """Run :func:`copy_chunks` in one of Spark's Python workers."""
    spark.sparkContext.environment |= build_worker_environment(copy_chunks.__module__)
    (written,) = spark.sparkContext.parallelize([list(chunks)], 1).map(copy_chunks).collect()
    return written


class TableCopy:
    """Brings a table on the run's branch up to a snapshot of the source.

    It builds on what an interrupted attempt left on the branch, or else on the published content, or copies all rows.
    Call :meth:`count`, then :meth:`plan`, then :meth:`accept_part` for each part of the plan, then :meth:`ledger_row`.
    """

    def __init__(
        self,
        app: SparkApp,
        connection: Connection,
        snapshot: PostgresSnapshot,
        table: Table,
        published: PublishedTable,
        read_valid_positions: Callable[[], Collection[WalPosition]],
    ) -> None:
        self.app, self.connection, self.snapshot, self.table = app, connection, snapshot, table
        self.name = f"bronze.{table.name}"
        self.heap = read_heap_file(connection, table)
        self._lake = published.table
        self._main = self._lake.current_snapshot()
        self._interrupted = find_interrupted_baseline(
            self._lake, app.run.branch, table, self.heap, snapshot, read_valid_positions, self._count_lake_rows
        )
        self.base = self._interrupted or published.find_baseline(table, snapshot)
        self.end = plan_growth(self.base, self.heap.pages)
        """The pages at the end of a table that are read while the source counts, if there are any."""
        self._growth: PreparedCommit | None = None
        """The prepared commit of ``end``, which is used if nothing else changed."""
        self._counted = RowCounts(0, 0, None)
        self._rows_written = self._outdated = 0
        self._plan = ReadPlan(ReadExtent.FULL, None, ())
        self._lock = threading.Lock()
        self._progress = CopyProgress(0)
        self._written: list[WrittenPart] = []
        self._ranges: list[dict[str, Any]] = []
        self._changes: list[str] = []
        self._commit: CommitResult | None = None
        self._rows_deleted = 0
        self.deleted: DataFrame | None = None
        """Keys of the published table that the source no longer has, if there are any."""

    def count(self, connection: Connection) -> None:
        """Count the source's rows, and with a baseline the changed rows; ``connection`` sees the snapshot."""
        if self.base is None:
            self._counted = RowCounts(count_rows(connection, self.table), 0, None)
        else:
            before = self.end.pages[0] if self.end else None
            self._counted = count_changed_rows(connection, self.table, self.base.since, before)

    def prepare_growth_commit(self) -> None:
        """Prepare the commit of ``end``, which is read already."""
        if self.base and self.end and self.end.written and self.end.written.paths:
            properties = self._properties(WHOLE_TABLE, is_first=True)
            parent_id = self.base.snapshot_id
            self._growth = prepare_row_change(*self._target, self.end.written.paths, None, properties, parent_id)

    def plan(self) -> ReadPlan:
        """Return the parts to read, and reset the run's branch to the content to which they are added."""
        counted = self._counted
        self._set_plan(plan_read(self.base, self.heap.pages, counted.rows, counted.changed, counted.places, self.end))
        match self._plan.extent:
            case ReadExtent.FULL | ReadExtent.RESUMED:
                self._reset_branch()
            case ReadExtent.NONE if self._interrupted:
                self._reset_branch()
                if self._main:
                    self._find_deleted(self._interrupted.snapshot_id)
            case ReadExtent.NONE if self.app.run.branch in self._lake.refs():
                reset_branch(*self._target, None)
        return self._plan

    def chunk(self, part: ReadPart) -> ReadChunk:
        """Return the task for a worker that reads a part of the plan."""
        return ReadChunk(
            conninfo=build_conninfo(self.app.settings),
            snapshot=self.snapshot.name,
            statement=build_select(
                self.table, part.pages, part.since, part.places, self.connection.info.server_version
            ).as_string(),
            schema=get_parquet_schema(self._lake, [column.name for column in self.table.columns]),
            unique_columns=(*self.table.primary_key, "json"),
            folder=self._folder,
            io_properties=self._io,
        )

    def accept_part(self, written: WrittenPart, part: ReadPart) -> CopyProgress:
        """Commit a part if it contains whole pages, and finish the table after the last part. Returns the progress."""
        with self._lock:
            progress = self._accept(written, part)
        if progress.is_finished:
            self._finish()
        return progress

    def ledger_row(self) -> dict[str, Any]:
        """Return the table's row of ``audit.ledger``."""
        after = self._commit or self._describe_base()
        return {
            "branch": self.app.run.branch,
            "table_name": self.table.name,
            "load": self.table.load.value,
            "extent": self._plan.extent.value,
            "statement": self.snapshot.fingerprints[self.table.name],
            "rows_source": self._counted.rows,
            "rows_read": sum(part.rows for part in self._written),
            "rows_written": self._rows_written,
            **_hashes(self._written),
            "ranges": self._ranges,
            "rows_replaced": self._outdated,
            "rows_deleted": self._rows_deleted,
            "files": after.files,
            "bytes": after.bytes,
            "seconds": sum(part.seconds for part in self._written),
            "snapshot_id": after.snapshot_id,
            "written_at": datetime.now(UTC),
            "heap_pages": self.heap.pages,
        }

    def _accept(self, written: WrittenPart, part: ReadPart) -> CopyProgress:
        """Commit whole pages at once, so that a resumed run does not read them again."""
        is_first = not self._plan.base and not self._written
        self._written.append(written)
        first, last = part.pages
        self._ranges.append({"first_page": first, "last_page": last, "rows": written.rows} | _hashes([written]))
        if part.since is not None:
            self._changes += written.paths
        elif is_first:
            self._record_commit(
                replace_content(*self._target, written.paths, self._properties(part.pages, is_first=True))
            )
        elif written.path:
            properties = self._properties(part.pages, is_first=False)
            self._record_commit(prepare_row_change(*self._target, written.paths, None, properties).commit())
        expected = self._counted.rows if self._plan.extent is ReadExtent.FULL else None
        self._progress = self._progress.advance(written, count_pages(part.pages, self.heap.pages), expected)
        return self._progress

    def _finish(self) -> None:
        if self._plan.base:
            try:
                self._commit_changes(self._plan.base)
            except FullCopyRequiredError as reason:
                self.app.report_progress(f"{self.name} is copied as a whole: {reason}")
                self._copy_all_rows()
        if self._growth:
            self._growth.abandon()
        if self._main and self._commit and (self._interrupted or self._plan.extent is ReadExtent.FULL):
            self._find_deleted(self._commit.snapshot_id)

    def _commit_changes(self, base: Baseline) -> None:
        """Add the changed rows, and delete outdated versions and rows that the source no longer has."""
        deletes = find_rows_to_delete(
            self.app.spark,
            self.connection,
            self.table,
            self._lake,
            base,
            [path for part in self._written for path in part.paths],
            self._counted.rows,
            sum(part.rows for part in self._written),
        )
        delete_files = write_position_deletes(deletes.places, self._folder, self._io) if deletes.places else None
        if self._growth and not delete_files and self._plan.parts == (self.end,):
            self._record_commit(self._growth.commit())
            self._growth = None
        else:
            parent_id = base.snapshot_id if self._plan.extent is ReadExtent.CHANGED else None
            properties = self._properties(WHOLE_TABLE, is_first=True)
            self._record_commit(
                prepare_row_change(*self._target, self._changes, delete_files, properties, parent_id).commit()
            )
        self._outdated, self._rows_deleted, self.deleted = deletes.outdated, deletes.rows_deleted, deletes.deleted

    def _copy_all_rows(self) -> None:
        self._set_plan(plan_read(None, self.heap.pages, self._counted.rows, 0))
        self._reset_branch()
        self._written, self._ranges, self._changes, self._rows_written = [], [], [], 0
        for part in self._plan.parts:
            (written,) = copy_in_worker(self.app.spark, [self.chunk(part)])
            self.app.report_progress(f"{self.name}: {self._accept(written, part)}")

    def _set_plan(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._progress = CopyProgress(sum(count_pages(part.pages, self.heap.pages) for part in plan.parts))

    def _reset_branch(self) -> None:
        at = self._plan.base or self._main
        reset_branch(*self._target, at.snapshot_id if at else None)

    def _find_deleted(self, snapshot_id: int) -> None:
        assert self._main
        keys = find_deleted_keys(self.app.spark, self.table, self._main.snapshot_id, snapshot_id)
        self._rows_deleted = keys.count()
        self.deleted = keys if self._rows_deleted else None

    def _record_commit(self, commit: CommitResult) -> None:
        self._commit = commit
        self._rows_written += commit.rows_added

    def _count_lake_rows(self, snapshot_id: int) -> int:
        return self.app.spark.read.option("versionAsOf", snapshot_id).table(self.name).count()

    def _properties(self, pages: PageRange, *, is_first: bool) -> dict[str, str]:
        properties = build_snapshot_properties(self.table, self.heap, self.snapshot, pages, is_first=is_first)
        return properties | {"lakehouse.run": self.app.run.run_id}

    @property
    def _target(self) -> tuple[SparkSession, str, str]:
        return self.app.spark, self.name, self.app.run.branch

    @property
    def _folder(self) -> str:
        return f"{self._lake.location()}/data"

    @property
    def _io(self) -> dict[str, str]:
        return remove_secrets(self.app.catalog.properties | self.app.settings.lakehouse_catalog_properties)

    def _describe_base(self) -> CommitResult:
        assert self._plan.base
        snapshot = self._lake.snapshot_by_id(self._plan.base.snapshot_id)
        assert snapshot
        assert snapshot.summary
        totals = snapshot.summary.additional_properties
        counts = (int(totals.get(f"total-{name}") or 0) for name in ("data-files", "files-size"))
        return CommitResult(snapshot.snapshot_id, 0, *counts)


def _hashes(written: Sequence[WrittenPart]) -> dict[str, str]:
    """Return the content hashes of all rows: as received, and as stored in the files."""
    received, stored = (part.hash_received for part in written), (part.hash_stored for part in written)
    return {"hash_read": f"{combine_hashes(received):016x}", "hash_written": f"{combine_hashes(stored):016x}"}
