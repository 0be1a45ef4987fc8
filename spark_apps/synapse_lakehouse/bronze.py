"""Copy the catalogue's tables in parallel from one snapshot, and write down what was read."""

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime

from pyspark import inheritable_thread_target

from synapse_lakehouse.app import SparkApp
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.lake import audit
from synapse_lakehouse.lake.files import Commit, parquet_schema, replace_content
from synapse_lakehouse.source.connection import Connection, conninfo
from synapse_lakehouse.source.projection import select
from synapse_lakehouse.source.read import Chunk, Written, copy_chunk
from synapse_lakehouse.source.snapshot import Snapshot, chunks, count, measured

_PING_SECONDS = 30.0


def record_snapshot(app: SparkApp, snapshot: Snapshot) -> None:
    """Write the state of the source to ``audit.snapshots``."""
    row = {
        "branch": app.run.branch,
        "taken_at": snapshot.taken_at,
        "server_name": app.settings.synapse_server_name,
        "server_version": snapshot.server_version,
        "schema_version": snapshot.schema_version,
        "snapshot_xmin": snapshot.xmin,
        "snapshot_xmax": snapshot.xmax,
        "wal_lsn": snapshot.wal_lsn,
        "in_recovery": snapshot.in_recovery,
        "sequences": [vars(sequence) for sequence in snapshot.sequences],
    }
    audit.append(app.catalog, "audit.snapshots", [row], app.run)


def copy_tables(app: SparkApp, catalogue: Catalogue, connection: Connection, snapshot: Snapshot) -> None:
    """Copy all tables, each by page ranges, and write ``audit.ledger`` when the last one is done.

    The driver's connection counts rows while workers read; together they stay within LAKEHOUSE_SOURCE_CONNECTIONS.
    """
    copies = [_Copy(app, table, chunks(connection, table), snapshot) for table in catalogue.copied()]
    copies.sort(key=lambda copy: -len(copy.pending))
    with ThreadPoolExecutor(app.settings.lakehouse_source_connections - 1) as readers:
        waiting: set[Future[str | None]] = {
            readers.submit(inheritable_thread_target(app.spark)(copy.read), chunk)
            for copy in copies
            for chunk in copy.pending
        }
        for copy in copies:
            copy.rows_source = count(connection, copy.table)
        done = 0
        while waiting:
            finished, waiting = wait(waiting, timeout=_PING_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                if future.exception():
                    readers.shutdown(wait=False, cancel_futures=True)
                if line := future.result():
                    done += 1
                    app.progress(f"{done}/{len(copies)} {line}")
            # Also keeps the exporting transaction from counting as idle.
            connection.execute("select 1")
    audit.append(app.catalog, "audit.ledger", [copy.ledger_row() for copy in copies], app.run)


def record_measures(app: SparkApp, catalogue: Catalogue, connection: Connection) -> None:
    """Count the tables that are never copied, inside the same snapshot, into ``audit.stream_facts``."""
    now = datetime.now(UTC)
    rows = []
    for table in catalogue.measured():
        for stream, column in table.streams.items():
            by_writer = measured(connection, table, column)
            firsts = [one.first_id for one in by_writer if one.first_id is not None]
            lasts = [one.last_id for one in by_writer if one.last_id is not None]
            rows.append(
                {
                    "stream": stream,
                    "table_name": table.name,
                    "rows": sum(one.rows for one in by_writer),
                    "null_ids": sum(one.null_ids for one in by_writer),
                    "first_id": min(firsts, default=None),
                    "last_id": max(lasts, default=None),
                    "rows_by_writer": [(one.writer or "master", one.rows) for one in by_writer],
                    "measured_at": now,
                }
            )
    audit.append(app.catalog, "audit.stream_facts", rows, app.run)


class _Copy:
    """One table on its way into bronze."""

    def __init__(self, app: SparkApp, table: Table, pages: list[tuple[int, int | None]], snapshot: Snapshot) -> None:
        self.app, self.table = app, table
        self.lock = threading.Lock()
        self.rows_source: int | None = None
        self.written: list[Written] = []
        self.commit: Commit | None = None
        self.seconds = 0.0
        iceberg = app.catalog.load_table(self.name)
        self.pending = [
            Chunk(
                conninfo=conninfo(app.settings),
                snapshot=snapshot.name,
                statement=select(table, chunk).as_string(),
                schema=parquet_schema(iceberg, [column.name for column in table.columns]),
                unique_columns=(*table.primary_key, "json"),
                folder=f"{iceberg.location()}/data",
                io_properties=dict(app.catalog.properties) | app.settings.lakehouse_catalog_properties,
            )
            for chunk in pages
        ]

    @property
    def name(self) -> str:
        return f"bronze.{self.table.name}"

    def read(self, chunk: Chunk) -> str | None:
        """Read a chunk; after the last one commit them all, and say so in a line."""
        started = time.monotonic()
        (written,) = self.app.spark.sparkContext.parallelize([chunk], 1).map(copy_chunk).collect()
        with self.lock:
            self.seconds += time.monotonic() - started
            self.written.append(written)
            if len(self.written) < len(self.pending):
                return None
        paths = [one.path for one in self.written if one.path]
        self.commit = replace_content(self.app.spark, self.name, self.app.run.branch, paths, self.app.run.run_id)
        rows, size = sum(one.rows for one in self.written), sum(one.bytes for one in self.written)
        return f"{self.name}: {rows:,} rows, {size / 1e6:,.1f} MB, {rows / max(self.seconds, 1e-3):,.0f} rows/s"

    def ledger_row(self) -> dict[str, object]:
        assert self.commit is not None
        return {
            "branch": self.app.run.branch,
            "table_name": self.table.name,
            "load": self.table.load.value,
            "rows_source": self.rows_source,
            "rows_read": sum(one.rows for one in self.written),
            "rows_written": self.commit.rows,
            "files": self.commit.files,
            "bytes": self.commit.bytes,
            "seconds": self.seconds,
            "snapshot_id": self.commit.snapshot_id,
            "written_at": datetime.now(UTC),
        }
