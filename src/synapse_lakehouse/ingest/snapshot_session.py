"""Work on one snapshot of the source, begun again when a standby takes the snapshot back."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.iceberg.write import branches
from synapse_lakehouse.ingest.baseline import PublishedTable, read_published_tables
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import RecoveryConflictError
from synapse_lakehouse.postgres.snapshot.snapshot import PostgresSnapshot, export_snapshot
from synapse_lakehouse.spark_app import SparkApp

AwaitPublishedTables = Callable[[], Mapping[str, PublishedTable]]
"""Waits for what the lake holds, by table, which is read beside what the source is asked."""

SnapshotWork = Callable[[SparkApp, Catalogue, Connection, PostgresSnapshot, AwaitPublishedTables], None]
"""Takes the tables of the catalogue that can be copied from the snapshot, and the session that keeps it."""

KEEPALIVE_SECONDS: Final = 30.0
"""So often something is asked over the session that keeps the snapshot, lest it counts as idle."""

_RESTARTS: Final = 2


def run_on_snapshot(app: SparkApp, work: SnapshotWork, declared: Catalogue | None = None) -> None:
    """Take a snapshot of the source and do ``work`` on it, which may be done more than once.

    :param declared: what is copied; by default the project's catalogue.
    :raises SourceError: when the source cannot be read as the catalogue says.
    :raises RecoveryConflictError: when a standby took back one snapshot after the other.
    """
    declared = declared or catalogue.load_catalogue()
    for _ in range(_RESTARTS):
        try:
            _attempt(app, work, declared)
        except RecoveryConflictError:
            app.report_progress(
                "the standby cancelled the copy (conflict with recovery): starting over with a new snapshot"
            )
        else:
            return
    _attempt(app, work, declared)


def wait_with_keepalive(work: Future[None], connection: Connection) -> None:
    """Wait for ``work`` that asks nothing of ``connection``, which keeps the snapshot, without losing that."""
    while not wait([work], timeout=KEEPALIVE_SECONDS).done:
        connection.execute("select 1")
    work.result()


def _attempt(app: SparkApp, work: SnapshotWork, declared: Catalogue) -> None:
    with ThreadPoolExecutor(1) as reader:
        known = reader.submit(read_published_tables, app.catalog, declared).result
        with export_snapshot(app.settings, declared) as (connection, snapshot):
            work(app, _copied(app, declared, snapshot), connection, snapshot, known)


def _copied(app: SparkApp, declared: Catalogue, snapshot: PostgresSnapshot) -> Catalogue:
    """What of ``declared`` can be copied from the snapshot, after telling what cannot."""
    # What an attempt before left of a table that this one cannot copy is of another snapshot, and perhaps half.
    if snapshot.drifted_tables:
        branches.drop_branch(app.catalog, app.run.branch, [f"bronze.{name}" for name in snapshot.drifted_tables])
    for reason in snapshot.drifted_tables.values():
        app.report_progress(f"left as it was: {reason}")
    for novelty in snapshot.unknown_objects:
        app.report_progress(f"not copied, because this lakehouse does not know it: {novelty}")
    return declared.without_tables(snapshot.drifted_tables)
