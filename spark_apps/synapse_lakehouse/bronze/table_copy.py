"""One table on its way into bronze."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa

from synapse_lakehouse.app import SparkApp
from synapse_lakehouse.bronze.base import Base
from synapse_lakehouse.bronze.merge import CopyWhole, Removal, removal, vanished
from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.lake.files import Commit, change_content, parquet_schema, replace_content, write_position_deletes
from synapse_lakehouse.source.connection import Connection, conninfo
from synapse_lakehouse.source.content import combined
from synapse_lakehouse.source.projection import PageRange, select
from synapse_lakehouse.source.read import Chunk, Written, copy_chunk
from synapse_lakehouse.source.snapshot import PAGES_A_CHUNK, Snapshot, chunks, count, count_since, pages


class Extent(StrEnum):
    """How much of a table a run reads."""

    WHOLE = "whole"
    CHANGES = "changes"
    NOTHING = "nothing"


class TableCopy:
    """Brings a table up to a snapshot of the source, from ``base`` on if there is one."""

    def __init__(
        self, app: SparkApp, connection: Connection, snapshot: Snapshot, table: Table, base: Base | None
    ) -> None:
        self.app, self.connection, self.snapshot, self.table, self.base = app, connection, snapshot, table, base
        self.name = f"bronze.{table.name}"
        self.pages = pages(connection, table)
        self.extent = Extent.WHOLE
        self._lake = app.catalog.load_table(self.name)
        self._lock = threading.Lock()
        self._rows_source = 0
        self._rows_changed = 0
        self._pending = 0
        self._written: list[Written] = []
        self._commit: Commit | None = None
        self._outdated = 0
        self._deleted: pa.Table | None = None
        self._seconds = 0.0

    def count(self) -> None:
        """Count the source's rows, and with a base those that changed since."""
        if self.base is None:
            self._rows_source = count(self.connection, self.table)
        else:
            self._rows_source, self._rows_changed = count_since(self.connection, self.table, self.base.since)

    def plan(self) -> list[Chunk]:
        """What to read, in parts; nothing if the table is unchanged."""
        if self.base and not self._rows_changed and self._rows_source == self.base.rows:
            self.extent = Extent.NOTHING
            if self.app.run.branch in self._lake.refs():  # an earlier attempt at this run saw more
                self._lake.manage_snapshots().remove_branch(self.app.run.branch).commit()
            return []
        if self.base and 2 * self._rows_changed <= self._rows_source:
            self.extent = Extent.CHANGES
        parts = self._chunks()
        self._pending = len(parts)
        return parts

    def read(self, chunk: Chunk) -> str | None:
        """Read a chunk; after the last one commit them all, and say so in a line."""
        started = time.monotonic()
        written = self._copy(chunk)
        with self._lock:
            self._seconds += time.monotonic() - started
            self._written.append(written)
            if len(self._written) < self._pending:
                return None
        self._finish()
        rows, size = sum(one.rows for one in self._written), sum(one.bytes for one in self._written)
        return f"{self.name}: {rows:,} rows, {size / 1e6:,.1f} MB, {rows / max(self._seconds, 1e-3):,.0f} rows/s"

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do for the table."""
        return self.extent is Extent.NOTHING or self._commit is not None

    def ledger_row(self) -> dict[str, Any]:
        """The table's row of ``audit.ledger``."""
        after = self._commit or self._unchanged
        return {
            "branch": self.app.run.branch,
            "table_name": self.table.name,
            "load": self.table.load.value,
            "extent": self.extent.value,
            "statement": self.snapshot.fingerprints[self.table.name],
            "rows_source": self._rows_source,
            "rows_read": sum(one.rows for one in self._written),
            "rows_written": after.rows_added,
            "hash_read": f"{combined(one.hash_received for one in self._written):016x}",
            "hash_written": f"{combined(one.hash_stored for one in self._written):016x}",
            "rows_outdated": self._outdated,
            "rows_deleted": self._deleted.num_rows if self._deleted else 0,
            "files": after.files,
            "bytes": after.bytes,
            "seconds": self._seconds,
            "snapshot_id": after.snapshot_id,
            "written_at": datetime.now(UTC),
        }

    def deletions(self) -> Iterator[dict[str, Any]]:
        """The table's rows of ``audit.deletions``."""
        now = datetime.now(UTC)
        for key in self._deleted.to_pylist() if self._deleted else []:
            yield {"table_name": self.table.name, "key": json.dumps(key), "reason": None, "deleted_at": now}

    def _finish(self) -> None:
        if self.extent is Extent.CHANGES and self.base:
            try:
                self._change(self.base)
            except CopyWhole as reason:
                self.app.progress(f"{self.name} is copied whole: {reason}")
                self.extent = Extent.WHOLE
                self._written = [self._copy(chunk) for chunk in self._chunks()]
        if self.extent is Extent.WHOLE:
            self._replace()

    def _replace(self) -> None:
        app, before = self.app, self._lake.current_snapshot()
        self._commit = replace_content(app.spark, self.name, app.run.branch, self._paths, app.run.run_id)
        if before:
            self._deleted = vanished(app.spark, self.table, before.snapshot_id, self._commit.snapshot_id)

    def _change(self, base: Base) -> None:
        app = self.app
        changed = sum(one.rows for one in self._written)
        removed: Removal = removal(
            app.spark, self.connection, self.table, base, self._paths, self._rows_source, changed
        )
        deletes = write_position_deletes(removed.places, self._folder, self._io) if removed.places.num_rows else None
        self._commit = change_content(app.spark, self.name, app.run.branch, self._paths, deletes, app.run.run_id)
        self._outdated, self._deleted = removed.outdated, removed.deleted

    def _copy(self, chunk: Chunk) -> Written:
        (written,) = self.app.spark.sparkContext.parallelize([chunk], 1).map(copy_chunk).collect()
        return written

    def _chunks(self) -> list[Chunk]:
        return [self._chunk(pages) for pages in chunks(self.pages, self._pages_a_chunk)]

    @property
    def _pages_a_chunk(self) -> int:
        # As many files as the changes need: their share of the table's pages.
        share = self._rows_changed / max(self._rows_source, 1) if self.extent is Extent.CHANGES else 1.0
        return int(PAGES_A_CHUNK / max(share, 1 / 64))

    def _chunk(self, pages: PageRange) -> Chunk:
        since = self.base.since if self.base and self.extent is Extent.CHANGES else None
        return Chunk(
            conninfo=conninfo(self.app.settings),
            snapshot=self.snapshot.name,
            statement=select(self.table, pages, since).as_string(),
            schema=parquet_schema(self._lake, [column.name for column in self.table.columns]),
            unique_columns=(*self.table.primary_key, "json"),
            folder=self._folder,
            io_properties=self._io,
        )

    @property
    def _paths(self) -> list[str]:
        return [one.path for one in self._written if one.path]

    @property
    def _folder(self) -> str:
        return f"{self._lake.location()}/data"

    @property
    def _io(self) -> dict[str, str]:
        return dict(self.app.catalog.properties) | self.app.settings.lakehouse_catalog_properties

    @cached_property
    def _unchanged(self) -> Commit:
        snapshot = self._lake.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        totals = snapshot.summary.additional_properties
        return Commit(
            snapshot.snapshot_id, 0, *(int(totals.get(f"total-{one}") or 0) for one in ("data-files", "files-size"))
        )
