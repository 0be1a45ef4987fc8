"""A session on one exported snapshot of Synapse's database, with a retry after a standby's recovery conflict."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Final, TypeVar

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.iceberg.write import branches
from synapse_lakehouse.ingest.baseline import PublishedTable, read_published_tables
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import RecoveryConflictError
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot, export_snapshot
from synapse_lakehouse.spark_app import SparkApp

KEEPALIVE_SECONDS: Final = 30.0
"""Interval of queries on the exporting connection, so that PostgreSQL does not end it as idle in a transaction."""

_MAX_ATTEMPTS: Final = 3

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class SnapshotSession:
    """An exported snapshot, the connection that exports it, and the tables that can be copied from it.

    * ``absent_tables``: tables that the source's release of Synapse lacks. They are empty in the lake.
    """

    app: SparkApp
    catalogue: Catalogue
    absent_tables: Sequence[Table]
    connection: Connection
    snapshot: PostgresSnapshot
    await_published_tables: Callable[[], Mapping[str, PublishedTable]]
    """Waits for the published tables by name; a thread reads them while the snapshot is taken."""


@contextmanager
def snapshot_session(app: SparkApp, declared: Catalogue | None = None) -> Iterator[SnapshotSession]:
    """Export a snapshot while the context lasts.

    :param declared: the tables to copy; by default those of the project's catalogue.
    :raises SourceError: when the database does not fit the catalogue.
    :raises RecoveryConflictError: when a standby cancels the snapshot.
    """
    declared = declared or catalogue.load_catalogue()
    with ThreadPoolExecutor(1) as reader:
        await_published = reader.submit(read_published_tables, app.catalog, declared).result
        with export_snapshot(app.settings, declared) as (connection, snapshot):
            copyable = _exclude_drifted_tables(app, declared, snapshot)
            absent = [table for table in declared.copied_tables() if table.name in snapshot.absent_objects]
            yield SnapshotSession(app, copyable, absent, connection, snapshot, await_published)


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
    # Drop what an earlier attempt wrote of tables that this attempt cannot copy: it is from another snapshot and may be
    # incomplete.
    if snapshot.drifted_tables:
        branches.drop_branch(app.catalog, app.run.branch, [f"bronze.{name}" for name in snapshot.drifted_tables])
    for reason in snapshot.drifted_tables.values():
        app.report_progress(f"left unchanged: {reason}")
    if snapshot.absent_objects:
        app.report_progress(f"not in this release of Synapse: {', '.join(snapshot.absent_objects)}")
    for name in snapshot.unknown_objects:
        app.report_progress(f"not copied, because this version of the lakehouse does not know it: {name}")
    return declared.restrict_to_source(snapshot.absent_objects).without_tables(snapshot.drifted_tables)
