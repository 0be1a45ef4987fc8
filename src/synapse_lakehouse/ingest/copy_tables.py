"""Copy the catalogue's tables in parallel from one snapshot: what changed since the release before, or all of it."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from threading import Event
from time import monotonic

from pyspark import inheritable_thread_target

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.ingest import deleted_keys
from synapse_lakehouse.ingest.baseline import add_older_releases, read_valid_wal_positions
from synapse_lakehouse.ingest.copy_progress import CopyProgress
from synapse_lakehouse.ingest.count_tables import count_tables
from synapse_lakehouse.ingest.ledger import record_snapshot, snapshot_columns
from synapse_lakehouse.ingest.read_plan import ReadPart
from synapse_lakehouse.ingest.snapshot_session import KEEPALIVE_SECONDS, AwaitPublishedTables, wait_with_keepalive
from synapse_lakehouse.ingest.table_copy import TableCopy, copy_in_worker
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.page_ranges import count_pages
from synapse_lakehouse.postgres.rows.read import copy_chunks
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot
from synapse_lakehouse.spark_app import SparkApp

_TELL_SECONDS = 3.0
_PAGES_A_BATCH = 1024
_PARTS_A_BATCH = 8


def copy_tables(
    app: SparkApp, catalogue: Catalogue, connection: Connection, snapshot: PostgresSnapshot, known: AwaitPublishedTables
) -> None:
    """Bring all tables up to ``snapshot`` on the run's branch; write ``audit.snapshots``, ``ledger`` and ``deletions``.

    The driver's connection counts rows that all have to be read while workers read them; together they stay within
    LAKEHOUSE_SOURCE_CONNECTIONS.
    """
    copied, of_newest = catalogue.copied_tables(), known()
    in_lake = add_older_releases(app.catalog, {table.name: of_newest[table.name] for table in copied})
    # Few runs go on from what was left, and need to know.
    seen = cache(lambda: read_valid_wal_positions(app.catalog))
    copies = [TableCopy(app, connection, snapshot, table, in_lake[table.name], seen) for table in copied]
    copies.sort(key=lambda copy: (copy.base is not None, -copy.heap.pages))
    with ThreadPoolExecutor(app.settings.lakehouse_source_connections - 1) as readers:
        # Beside what is read of the lake it would hold that up; beside what the source counts it costs nothing.
        recorded = readers.submit(record_snapshot, app, snapshot, datetime.now(UTC))
        # Spark is made ready for the run while the source counts.
        readers.submit(getattr, app, "spark")
        counted = Event()
        ends = readers.submit(_read_ends, app, [(copy, copy.end) for copy in copies if copy.end], counted)
        changed = [(copy.heap.pages, copy.count) for copy in copies if copy.base]
        count_tables(app.settings, connection, snapshot, changed, readers)
        counted.set()
        wait_with_keepalive(ends, connection)
        # What is committed from here on can be gone on from, where it is known what it is of.
        wait_with_keepalive(recorded, connection)
        read = inheritable_thread_target(app.spark)(_read)
        work = [(copy, part) for copy in copies for part in copy.plan().parts]
        waiting: set[Future[list[tuple[str, CopyProgress]]]] = {
            readers.submit(read, app, batch) for batch in batch_parts(work)
        }
        for copy in copies:
            if not copy.base:
                copy.count(connection)
        done, told = len(copies) - len({copy.name for copy, _ in work}), monotonic()
        while waiting:
            finished, waiting = wait(waiting, timeout=KEEPALIVE_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                if future.exception():
                    readers.shutdown(wait=False, cancel_futures=True)
                for name, pace in future.result():
                    done += pace.is_finished
                    if pace.is_finished or monotonic() - told > _TELL_SECONDS:
                        app.report_progress(f"{done}/{len(copies)} {name}: {pace}")
                        told = monotonic()
            # Also keeps the exporting transaction from counting as idle.
            connection.execute("select 1")
        record = inheritable_thread_target(app.spark)(deleted_keys.record_deleted_keys)
        deleted = {copy.table.name: copy.deleted for copy in copies if copy.deleted}
        wait_with_keepalive(readers.submit(record, deleted, app.run, datetime.now(UTC)), connection)
    ledger = [copy.ledger_row() | snapshot_columns(snapshot) for copy in copies]
    store.append_audit_rows(app.catalog, "audit.ledger", ledger, app.run)
    unchanged = sum(row["extent"] == "nothing" for row in ledger)
    read, written = (sum(row[name] for row in ledger) for name in ("rows_read", "rows_written"))
    app.report_progress(f"{unchanged} of {len(copies)} tables unchanged, {read:,} rows read, {written:,} written")


def batch_parts(work: Iterable[tuple[TableCopy, ReadPart]]) -> Iterator[list[tuple[TableCopy, ReadPart]]]:
    """Parts that are read one after the other: large ones alone, others together, as each job costs its start."""
    for is_small, alike in groupby(sorted(work, key=_is_small), _is_small):
        batch: list[tuple[TableCopy, ReadPart]] = []
        pages = 0
        for copy, part in alike:
            batch.append((copy, part))
            pages += 0 if is_small else count_pages(part.pages, copy.heap.pages)
            if pages >= _PAGES_A_BATCH or len(batch) == _PARTS_A_BATCH:
                yield batch
                batch, pages = [], 0
        if batch:
            yield batch


def _read(app: SparkApp, batch: Sequence[tuple[TableCopy, ReadPart]]) -> list[tuple[str, CopyProgress]]:
    """Read a batch; each table's pace after each of its parts. What is small is read here, without Spark's workers."""
    chunks = [copy.chunk(part) for copy, part in batch if not part.written]
    read = iter(copy_chunks(chunks) if _is_small(batch[0]) else copy_in_worker(app.spark, chunks))
    return [(copy.name, copy.accept_part(part.written or next(read), part)) for copy, part in batch]


def _read_ends(app: SparkApp, ends: Sequence[tuple[TableCopy, ReadPart]], counted: Event) -> None:
    read = copy_chunks([copy.chunk(end) for copy, end in ends])
    for (copy, end), written in zip(ends, read, strict=True):
        copy.end = replace(end, written=written)
    for copy, _ in ends:
        # Nobody waits for it: later several threads do the rest, with what they know then.
        if app.spark_has_started and not counted.is_set():
            copy.prepare_growth_commit()


def _is_small(work: tuple[TableCopy, ReadPart]) -> bool:
    copy, part = work
    return part.is_small(copy.heap.pages)
