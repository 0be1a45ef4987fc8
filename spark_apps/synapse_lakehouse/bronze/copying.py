"""Copy the catalogue's tables in parallel from one snapshot: what changed since the release before, or all of it."""

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pyspark import inheritable_thread_target

from synapse_lakehouse.app import SparkApp
from synapse_lakehouse.bronze.base import published
from synapse_lakehouse.bronze.recording import origin
from synapse_lakehouse.bronze.table_copy import TableCopy
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.lake import audit
from synapse_lakehouse.source.connection import Connection
from synapse_lakehouse.source.snapshot import Snapshot

_PING_SECONDS = 30.0


def copy_tables(app: SparkApp, catalogue: Catalogue, connection: Connection, snapshot: Snapshot) -> None:
    """Bring all tables up to ``snapshot`` on the run's branch, then write ``audit.ledger`` and ``audit.deletions``.

    The driver's connection counts rows while workers read; together they stay within LAKEHOUSE_SOURCE_CONNECTIONS.
    """
    known = published(app.catalog, catalogue, snapshot)
    copies = [TableCopy(app, connection, snapshot, table, known.get(table.name)) for table in catalogue.copied()]
    copies.sort(key=lambda copy: (copy.base is not None, -copy.heap.pages))
    with ThreadPoolExecutor(app.settings.lakehouse_source_connections - 1) as readers:
        waiting: set[Future[str | None]] = set()
        done = 0
        for copy in copies:
            if copy.base:
                copy.count()
            parts = copy.plan().parts
            done += not parts
            read = inheritable_thread_target(app.spark)(copy.read)
            waiting |= {readers.submit(read, pages, since) for pages, since in parts}
        for copy in copies:
            if not copy.base:
                copy.count()
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
    if deletions := [row for copy in copies for row in copy.deletions()]:
        audit.append(app.catalog, "audit.deletions", deletions, app.run)
    ledger = [copy.ledger_row() | origin(snapshot) for copy in copies]
    audit.append(app.catalog, "audit.ledger", ledger, app.run)
    unchanged = sum(row["extent"] == "nothing" for row in ledger)
    read, written = (sum(row[name] for row in ledger) for name in ("rows_read", "rows_written"))
    app.progress(f"{unchanged} of {len(copies)} tables unchanged, {read:,} rows read, {written:,} written")
