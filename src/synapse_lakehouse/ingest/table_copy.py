"""One table on its way into bronze."""

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
from synapse_lakehouse.postgres.rows.page_ranges import WHOLE_TABLE, PageRange, count_pages
from synapse_lakehouse.postgres.rows.read import ReadChunk, WrittenPart, copy_chunks
from synapse_lakehouse.postgres.rows.row_counts import RowCounts, count_changed_rows, count_rows, read_heap_file
from synapse_lakehouse.postgres.rows.select_sql import build_select
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.postgres.snapshot.timeline import WalPosition
from synapse_lakehouse.spark_app import SparkApp


def copy_in_worker(spark: SparkSession, chunks: Sequence[ReadChunk]) -> list[WrittenPart]:
    """Let one of Spark's workers do :func:`copy_chunks`."""
    spark.sparkContext.environment |= build_worker_environment(copy_chunks.__module__)
    (written,) = spark.sparkContext.parallelize([list(chunks)], 1).map(copy_chunks).collect()
    return written


class TableCopy:
    """Brings a table up to a snapshot of the source on the run's branch.

    It goes on from what an interrupted attempt left there, or else from what is published, or starts over.
    """

    def __init__(
        self,
        app: SparkApp,
        connection: Connection,
        snapshot: PostgresSnapshot,
        table: Table,
        in_lake: PublishedTable,
        lasting: Callable[[], Collection[WalPosition]],
    ) -> None:
        self.app, self.connection, self.snapshot, self.table = app, connection, snapshot, table
        self.name = f"bronze.{table.name}"
        self.heap = read_heap_file(connection, table)
        self._lake = in_lake.table
        self._main = self._lake.current_snapshot()
        self._left = find_interrupted_baseline(
            self._lake, app.run.branch, table, self.heap, snapshot, lasting, self._rows_at
        )
        self.base = self._left or in_lake.find_baseline(table, snapshot)
        self.end = plan_growth(self.base, self.heap.pages)
        """What is read while the source counts, if anything is."""
        self._growth: PreparedCommit | None = None
        """The commit of the end, which is the table's where nothing else changed."""
        self._counted = RowCounts(0, 0, None)
        self._rows_written = self._outdated = 0
        self._plan = ReadPlan(ReadExtent.WHOLE, None, ())
        self._lock = threading.Lock()
        self._pace = CopyProgress(0)
        self._written: list[WrittenPart] = []
        self._ranges: list[dict[str, Any]] = []
        self._changes: list[str] = []
        self._commit: CommitResult | None = None
        self._rows_deleted = 0
        self.deleted: DataFrame | None = None
        """Keys that the published table had and the source no longer has, if there are any."""

    def count(self, connection: Connection) -> None:
        """Count the source's rows, and with a base those that changed since; ``connection`` sees the snapshot."""
        if self.base is None:
            self._counted = RowCounts(count_rows(connection, self.table), 0, None)
        else:
            before = self.end.pages[0] if self.end else None
            self._counted = count_changed_rows(connection, self.table, self.base.since, before)

    def prepare_growth_commit(self) -> None:
        """Prepare the commit of the end, which was read."""
        if self.base and self.end and self.end.written and self.end.written.paths:
            said = self._told(WHOLE_TABLE, is_first=True)
            at = self.base.snapshot_id
            self._growth = prepare_row_change(*self._target, self.end.written.paths, None, said, at)

    def plan(self) -> ReadPlan:
        """What to read, after making the run's branch what that is added to."""
        counted = self._counted
        self._to_do(plan_read(self.base, self.heap.pages, counted.rows, counted.changed, counted.places, self.end))
        match self._plan.extent:
            case ReadExtent.WHOLE | ReadExtent.REST:
                self._start_branch()
            case ReadExtent.NOTHING if self._left:
                self._start_branch()
                if self._main:
                    self._find_vanished(self._left.snapshot_id)
            case ReadExtent.NOTHING if self.app.run.branch in self._lake.refs():
                reset_branch(*self._target, None)
        return self._plan

    def chunk(self, part: ReadPart) -> ReadChunk:
        """What a worker needs to read a part of the plan."""
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
        """Take a part that was read, and commit it if it stands for itself; with the last one finish the table."""
        with self._lock:
            pace = self._keep(written, part)
        if pace.is_finished:
            self._finish()
        return pace

    def ledger_row(self) -> dict[str, Any]:
        """The table's row of ``audit.ledger``."""
        after = self._commit or self._as_it_was()
        return {
            "branch": self.app.run.branch,
            "table_name": self.table.name,
            "load": self.table.load.value,
            "extent": self._plan.extent.value,
            "statement": self.snapshot.fingerprints[self.table.name],
            "rows_source": self._counted.rows,
            "rows_read": sum(one.rows for one in self._written),
            "rows_written": self._rows_written,
            **_hashes(self._written),
            "ranges": self._ranges,
            "rows_outdated": self._outdated,
            "rows_deleted": self._rows_deleted,
            "files": after.files,
            "bytes": after.bytes,
            "seconds": sum(one.seconds for one in self._written),
            "snapshot_id": after.snapshot_id,
            "written_at": datetime.now(UTC),
            "heap_pages": self.heap.pages,
        }

    def _keep(self, written: WrittenPart, part: ReadPart) -> CopyProgress:
        """Commit whole pages at once, so that they are not read again if this attempt does not live to the end."""
        is_first = not self._plan.base and not self._written
        self._written.append(written)
        first, last = part.pages
        self._ranges.append({"first_page": first, "last_page": last, "rows": written.rows} | _hashes([written]))
        if part.since is not None:
            self._changes += written.paths
        elif is_first:
            self._committed(replace_content(*self._target, written.paths, self._told(part.pages, is_first=True)))
        elif written.path:
            said = self._told(part.pages, is_first=False)
            self._committed(prepare_row_change(*self._target, written.paths, None, said).commit())
        expected = self._counted.rows if self._plan.extent is ReadExtent.WHOLE else None
        self._pace = self._pace.after(written, count_pages(part.pages, self.heap.pages), expected)
        return self._pace

    def _finish(self) -> None:
        if self._plan.base:
            try:
                self._change(self._plan.base)
            except FullCopyRequiredError as reason:
                self.app.report_progress(f"{self.name} is copied whole: {reason}")
                self._start_over()
        if self._growth:
            self._growth.abandon()
        if self._main and self._commit and (self._left or self._plan.extent is ReadExtent.WHOLE):
            self._find_vanished(self._commit.snapshot_id)

    def _change(self, base: Baseline) -> None:
        """Add the changed rows, and take away what they outdate and what the source no longer has."""
        removed = find_rows_to_delete(
            self.app.spark,
            self.connection,
            self.table,
            self._lake,
            base,
            [path for one in self._written for path in one.paths],
            self._counted.rows,
            sum(one.rows for one in self._written),
        )
        deletes = write_position_deletes(removed.places, self._folder, self._io) if removed.places else None
        if self._growth and not deletes and self._plan.parts == (self.end,):
            self._committed(self._growth.commit())
            self._growth = None
        else:
            at = base.snapshot_id if self._plan.extent is ReadExtent.CHANGES else None
            said = self._told(WHOLE_TABLE, is_first=True)
            self._committed(prepare_row_change(*self._target, self._changes, deletes, said, at).commit())
        self._outdated, self._rows_deleted, self.deleted = removed.outdated, removed.rows_deleted, removed.deleted

    def _start_over(self) -> None:
        self._to_do(plan_read(None, self.heap.pages, self._counted.rows, 0))
        self._start_branch()
        self._written, self._ranges, self._changes, self._rows_written = [], [], [], 0
        for part in self._plan.parts:
            (written,) = copy_in_worker(self.app.spark, [self.chunk(part)])
            self.app.report_progress(f"{self.name}: {self._keep(written, part)}")

    def _to_do(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._pace = CopyProgress(sum(count_pages(part.pages, self.heap.pages) for part in plan.parts))

    def _start_branch(self) -> None:
        at = self._plan.base or self._main
        reset_branch(*self._target, at.snapshot_id if at else None)

    def _find_vanished(self, now: int) -> None:
        assert self._main
        keys = find_deleted_keys(self.app.spark, self.table, self._main.snapshot_id, now)
        self._rows_deleted = keys.count()
        self.deleted = keys if self._rows_deleted else None

    def _committed(self, commit: CommitResult) -> None:
        self._commit = commit
        self._rows_written += commit.rows_added

    def _rows_at(self, snapshot_id: int) -> int:
        return self.app.spark.read.option("versionAsOf", snapshot_id).table(self.name).count()

    def _told(self, pages: PageRange, *, is_first: bool) -> dict[str, str]:
        said = build_snapshot_properties(self.table, self.heap, self.snapshot, pages, is_first=is_first)
        return said | {"lakehouse.run": self.app.run.run_id}

    @property
    def _target(self) -> tuple[SparkSession, str, str]:
        return self.app.spark, self.name, self.app.run.branch

    @property
    def _folder(self) -> str:
        return f"{self._lake.location()}/data"

    @property
    def _io(self) -> dict[str, str]:
        return remove_secrets(self.app.catalog.properties | self.app.settings.lakehouse_catalog_properties)

    def _as_it_was(self) -> CommitResult:
        assert self._plan.base
        snapshot = self._lake.snapshot_by_id(self._plan.base.snapshot_id)
        assert snapshot
        assert snapshot.summary
        totals = snapshot.summary.additional_properties
        counts = (int(totals.get(f"total-{one}") or 0) for one in ("data-files", "files-size"))
        return CommitResult(snapshot.snapshot_id, 0, *counts)


def _hashes(written: Sequence[WrittenPart]) -> dict[str, str]:
    """Content hashes of all rows together: as they were received, and as their files hold them."""
    received, stored = (one.hash_received for one in written), (one.hash_stored for one in written)
    return {"hash_read": f"{combine_hashes(received):016x}", "hash_written": f"{combine_hashes(stored):016x}"}
