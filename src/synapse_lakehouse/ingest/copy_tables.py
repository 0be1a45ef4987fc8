"""Copy the catalogue's tables in parallel from one snapshot: rows changed since the last release, or all rows."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from itertools import groupby
from threading import Event
from time import monotonic

import psycopg
from pyspark import inheritable_thread_target

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.ingest import deleted_keys
from synapse_lakehouse.ingest.absent_tables import clear_absent_table
from synapse_lakehouse.ingest.baseline import add_older_releases, read_valid_wal_positions
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.count_tables import CANCEL_SECONDS, count_tables
from synapse_lakehouse.ingest.ledger import record_snapshots, snapshot_columns
from synapse_lakehouse.ingest.read_plan import ReadPart
from synapse_lakehouse.ingest.snapshot_session import KEEPALIVE_SECONDS, SnapshotSession, wait_with_keepalive
from synapse_lakehouse.ingest.table_copy import FinishedCopy, StartedCopy, TableCopy, copy_in_worker, start_copy
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import SourceError
from synapse_lakehouse.postgres.rows.copy_to_parquet import copy_chunks
from synapse_lakehouse.postgres.rows.row_counts import RowCounts
from synapse_lakehouse.postgres.snapshot.table_locks import find_rewritten_tables
from synapse_lakehouse.spark_app import SparkApp

_REPORT_SECONDS = 3.0
_PAGES_PER_BATCH = 1024
_PARTS_PER_BATCH = 8

Work = list[tuple[TableCopy, ReadPart]]


def copy_tables(session: SnapshotSession) -> None:
    """Bring all tables on the run's branch to the state of the PostgreSQL snapshots.

    The copy is recorded in ``audit.snapshots``, ``audit.ledger`` and ``audit.deletions``. If all rows of a table are
    read, the driver counts the table's rows while workers read them. The connections of driver and workers together
    stay within LAKEHOUSE_SOURCE_CONNECTIONS in each database.
    """
    app, connection = session.app, session.connection
    started = _start_copies(session)
    with ThreadPoolExecutor(max(app.settings.lakehouse_source_connections - len(session.exported), 1)) as readers:
        counts = _count_changes(session, started, readers)
        copies = [TableCopy(copy.plan(counts.get(copy.target.name))) for copy in started]
        finished = _read_parts(session, copies, readers)
        _require_same_partitions(session)
        record = inheritable_thread_target(app.spark)(deleted_keys.record_deleted_keys)
        deleted = {copy.target.table.name: keys for copy, result in finished if (keys := result.deleted.missing_keys)}
        wait_with_keepalive(readers.submit(record, deleted, app.run, datetime.now(UTC)), connection)
    rows = [(copy.target.table, result.ledger_row(copy.rows_source)) for copy, result in finished]
    rows += [(table, clear_absent_table(session, table)) for table in session.absent_tables]
    ledger = [row | snapshot_columns(session.get_exported(table.database).snapshot) for table, row in rows]
    store.append_audit_rows(app.catalog, "audit.ledger", ledger, app.run)
    unchanged = sum(row["extent"] == "none" for row in ledger)
    read, written = (sum(row[name] for row in ledger) for name in ("rows_read", "rows_written"))
    app.report_progress(f"{unchanged} of {len(copies)} tables unchanged, {read:,} rows read, {written:,} written")


def _start_copies(session: SnapshotSession) -> list[StartedCopy]:
    """Return a copy for each table: first full copies, then incremental copies, both by descending size."""
    app, tables = session.app, session.catalogue.copied_tables()
    newest = session.await_published_tables()
    published = add_older_releases(app.catalog, {table.name: newest[table.name] for table in tables})
    # The positions are read once at most, because only a resumed run needs them.
    read_positions = cache(lambda: read_valid_wal_positions(app.catalog))
    started = [start_copy(session, table, published[table.name], read_positions) for table in tables]
    return sorted(started, key=lambda copy: (copy.base is not None, -copy.target.heap.pages))


def _count_changes(
    session: SnapshotSession, started: Sequence[StartedCopy], readers: ThreadPoolExecutor
) -> dict[str, RowCounts]:
    """Count the changed rows of the tables with a baseline."""
    app, connection = session.app, session.connection
    # This write overlaps with the source's work. An earlier write would delay reads of the lake.
    snapshots = [part.snapshot for part in session.exported]
    recorded = readers.submit(record_snapshots, app, snapshots, datetime.now(UTC))
    # Spark starts while the source counts.
    readers.submit(getattr, app, "spark")
    counts: dict[str, RowCounts] = {}

    def count(copy: StartedCopy, connection: Connection) -> None:
        counts[copy.target.name] = copy.count(connection)

    for part in session.exported:
        with_baseline = [copy for copy in started if copy.base and copy.target.connection is part.connection]
        counting = [(copy.target.heap.pages, partial(count, copy)) for copy in with_baseline]
        count_tables(app.settings, part.connection, part.snapshot, counting, readers)
    # A later run can resume from a commit only if audit.snapshots has the commit's PostgreSQL snapshot.
    wait_with_keepalive(recorded, connection)
    return counts


def _require_same_partitions(session: SnapshotSession) -> None:
    """Raise SourceError if a partition was attached during the copy: its rows are missing. No lock prevents this."""
    for part in session.exported:
        names = [table.name for table in part.catalogue.copied_tables()]
        if changed := find_rewritten_tables(part.connection, names):
            raise SourceError(
                f"Partitions were attached during the copy, so it is incomplete: {', '.join(changed)}. Nothing was "
                "published. Run again; that run reads these tables in full."
            )


def _read_parts(
    session: SnapshotSession, copies: Sequence[TableCopy], readers: ThreadPoolExecutor
) -> list[tuple[TableCopy, FinishedCopy]]:
    """Read and commit all planned parts; count the tables without a baseline meanwhile."""
    app = session.app
    read = inheritable_thread_target(app.spark)(_read_batch)
    work = [(copy, part) for copy in copies for part in copy.planned.plan.parts]
    pending = {readers.submit(read, app, batch) for batch in batch_parts(work)}
    try:
        _await_parts(session, copies, pending)
    except BaseException:
        # Without the snapshot, each further batch would start a Spark job only to fail.
        readers.shutdown(wait=False, cancel_futures=True)
        raise
    return [(copy, copy.finished) for copy in copies if copy.finished]


def _await_parts(
    session: SnapshotSession,
    copies: Sequence[TableCopy],
    pending: set[Future[list[tuple[str, CopyProgress]]]],
) -> None:
    finished_tables, reported_at = sum(not copy.planned.plan.parts for copy in copies), monotonic()
    with _count_rows(session, [copy for copy in copies if not copy.planned.started.base]) as counting:
        while pending or not counting.done():
            if not pending:
                wait([counting], timeout=KEEPALIVE_SECONDS)
            finished, pending = wait(pending, timeout=KEEPALIVE_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                for name, progress in future.result():
                    finished_tables += progress.is_finished
                    if progress.is_finished or monotonic() - reported_at > _REPORT_SECONDS:
                        session.app.report_progress(f"{finished_tables}/{len(copies)} {name}: {progress}")
                        reported_at = monotonic()
            if counting.done():
                counting.result()
                # This query also prevents an idle timeout of the exporting transaction.
                session.connection.execute("select 1")


@contextmanager
def _count_rows(session: SnapshotSession, copies: Sequence[TableCopy]) -> Iterator[Future[None]]:
    """Count the source's rows of ``copies`` in a thread, over the exporting connections, and yield its future.

    If the context fails, the count is cancelled: it may take hours.
    """
    is_cancelled = Event()

    def count() -> None:
        for copy in copies:
            if not is_cancelled.is_set():
                copy.rows_source = copy.planned.started.count(copy.target.connection).rows

    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(count)
        try:
            yield counting
        except BaseException:
            is_cancelled.set()
            while wait([counting], timeout=CANCEL_SECONDS).not_done:
                for part in session.exported:
                    with suppress(psycopg.Error):
                        part.connection.cancel()
            raise


def batch_parts(work: Iterable[tuple[TableCopy, ReadPart]]) -> Iterator[Work]:
    """Group parts of one database into batches, one Spark job each: a large part alone, small parts together."""
    for (is_small, _), group in groupby(sorted(work, key=_kind), _kind):
        batch: Work = []
        pages = 0
        for copy, part in group:
            batch.append((copy, part))
            pages += 0 if is_small else copy.target.heap.count_pages(part.pages)
            if pages >= _PAGES_PER_BATCH or len(batch) == _PARTS_PER_BATCH:
                yield batch
                batch, pages = [], 0
        if batch:
            yield batch


def _read_batch(app: SparkApp, batch: Sequence[tuple[TableCopy, ReadPart]]) -> list[tuple[str, CopyProgress]]:
    """Read a batch; return, for each part, the table and its progress. The driver itself reads small parts."""
    chunks = [copy.target.chunk(part) for copy, part in batch]
    files = copy_chunks(chunks) if _is_small(batch[0]) else copy_in_worker(app.spark, chunks)
    return [
        (copy.target.name, copy.accept_part(written, part)) for (copy, part), written in zip(batch, files, strict=True)
    ]


def _kind(work: tuple[TableCopy, ReadPart]) -> tuple[bool, Database]:
    return _is_small(work), work[0].target.snapshot.database


def _is_small(work: tuple[TableCopy, ReadPart]) -> bool:
    copy, part = work
    return part.is_small(copy.target.heap.pages)
