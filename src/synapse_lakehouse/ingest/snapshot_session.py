"""A session on exported snapshots of Synapse's databases, with a retry after a standby's recovery conflict."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from threading import Event
from typing import Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Catalogue, Database, Table
from synapse_lakehouse.iceberg.write import branches
from synapse_lakehouse.ingest.baseline import PublishedTable, read_published_tables
from synapse_lakehouse.postgres.access import preflight
from synapse_lakehouse.postgres.connection import Connection, split_by_database
from synapse_lakehouse.postgres.errors import RecoveryConflictError
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot, export_snapshot
from synapse_lakehouse.spark_app import SparkApp

KEEPALIVE_SECONDS: Final = 30.0
"""Interval of queries on the exporting connection, so that PostgreSQL does not end it as idle in a transaction."""

_MAX_ATTEMPTS: Final = 3

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ExportedSnapshot:
    """A PostgreSQL snapshot of a database, its exporting connection, and the tables that can be copied from it."""

    catalogue: Catalogue
    connection: Connection
    snapshot: PostgresSnapshot


@dataclass(frozen=True)
class SnapshotSession:
    """The exported snapshots, and the tables that can be copied from them.

    * ``exported``: the snapshot of each of Synapse's databases, in the order in which they were taken: main first.
    * ``absent_tables``: tables that the source's release of Synapse lacks. They are empty in the lake.
    """

    app: SparkApp
    catalogue: Catalogue
    absent_tables: Sequence[Table]
    exported: Sequence[ExportedSnapshot]
    await_published_tables: Callable[[], Mapping[str, PublishedTable]]
    """Returns the published tables by name, when the thread that reads them during the export has finished."""

    @property
    def connection(self) -> Connection:
        """The connection to the database with the events and streams."""
        return self.exported[0].connection

    def get_exported(self, database: Database) -> ExportedSnapshot:
        """Return the snapshot of ``database``."""
        return next(part for part in self.exported if database in part.catalogue.databases)


@contextmanager
def snapshot_session(app: SparkApp, declared: Catalogue | None = None) -> Iterator[SnapshotSession]:
    """Export a snapshot of each of Synapse's databases while the context lasts.

    Synapse stores a state group before its events. So a state snapshot that is taken after the main snapshot has all
    groups that main names, except groups that Synapse deleted between the two snapshots.

    :param declared: the tables to copy; by default those of the project's catalogue.
    :raises SourceError: when a database does not fit the catalogue, the databases belong to different homeservers, or a
        standby of state is behind main.
    :raises RecoveryConflictError: when a standby cancels a snapshot.
    """
    declared = declared or catalogue.load_catalogue()
    with ThreadPoolExecutor(1) as reader, ExitStack() as stack:
        await_published = reader.submit(read_published_tables, app.catalog, declared).result
        exported: list[ExportedSnapshot] = []
        for part in split_by_database(app.settings, declared):
            after = exported[0].snapshot if exported else None
            connection, snapshot = stack.enter_context(export_snapshot(app.settings, part, after))
            exported.append(ExportedSnapshot(_exclude_drifted_tables(app, part, snapshot), connection, snapshot))
        if len(exported) > 1:
            connections = [part.connection for part in exported]
            preflight.check_state_database(connections, [part.catalogue for part in exported])
            stack.enter_context(_heartbeat(connections))
        copyable = {table.name for part in exported for table in part.catalogue.tables}
        absent_objects = {name for part in exported for name in part.snapshot.absent_objects}
        present = declared.restrict_to_source(absent_objects)
        present = present.without_tables({table.name for table in present.tables} - copyable)
        absent = [table for table in declared.copied_tables() if table.name in absent_objects]
        yield SnapshotSession(app, present, absent, exported, await_published)


@contextmanager
def _heartbeat(connections: Sequence[Connection]) -> Iterator[None]:
    """Keep the snapshots of several connections alive: while a query runs on one, the others are idle."""
    ended = Event()

    def beat() -> None:
        while not ended.wait(KEEPALIVE_SECONDS):
            for connection in connections:
                if connection.info.transaction_status is TransactionStatus.INTRANS:
                    # If a connection is lost, its next query reports the loss.
                    with suppress(psycopg.Error):
                        connection.execute("select 1")

    with ThreadPoolExecutor(1) as beating:
        beating.submit(beat)
        try:
            yield
        finally:
            ended.set()


def retry_after_conflict(work: Callable[[SparkApp], None]) -> Callable[[SparkApp], None]:
    """Decorate ``work`` so that it starts again with a new snapshot when a standby cancels the old one.

    The last attempt raises :class:`RecoveryConflictError`.
    """

    @wraps(work)
    def work_with_retries(app: SparkApp) -> None:
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return work(app)
            except RecoveryConflictError:
                app.report_progress(
                    "the standby cancelled the copy (conflict with recovery): starting again with a new snapshot"
                )
        return work(app)

    return work_with_retries


def wait_with_keepalive(work: Future[_Result], connection: Connection) -> _Result:
    """Return the result of ``work``, which does not use ``connection``; keep that connection's snapshot alive."""
    while not wait([work], timeout=KEEPALIVE_SECONDS).done:
        connection.execute("select 1")
    return work.result()


def _exclude_drifted_tables(app: SparkApp, declared: Catalogue, snapshot: PostgresSnapshot) -> Catalogue:
    """Return the tables that can be copied from the snapshot; report the others."""
    # An earlier try may have written tables that this try cannot copy. Their content on the branch is from another
    # PostgreSQL snapshot and may be incomplete, so the branch is dropped.
    if snapshot.drifted_tables:
        branches.drop_branch(app.catalog, app.run.branch, [f"bronze.{name}" for name in snapshot.drifted_tables])
    for reason in snapshot.drifted_tables.values():
        app.report_progress(f"left unchanged: {reason}")
    if snapshot.absent_objects:
        app.report_progress(f"not in this release of Synapse: {', '.join(snapshot.absent_objects)}")
    for name in snapshot.unknown_objects:
        app.report_progress(f"not copied, because this version of the lakehouse does not know it: {name}")
    return declared.restrict_to_source(snapshot.absent_objects).without_tables(snapshot.drifted_tables)
