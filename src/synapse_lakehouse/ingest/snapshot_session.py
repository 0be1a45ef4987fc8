"""Work on one snapshot of the source, begun again when a standby takes the snapshot back."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.iceberg.write import branches
from synapse_lakehouse.ingest.baseline import InLake, in_lake
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import RecoveryConflict
from synapse_lakehouse.postgres.snapshot.snapshot import Snapshot, exported
from synapse_lakehouse.spark_app import SparkApp

Known = Callable[[], Mapping[str, InLake]]
"""Waits for what the lake holds, by table, which is read beside what the source is asked."""

Work = Callable[[SparkApp, Catalogue, Connection, Snapshot, Known], None]
"""Takes the tables of the catalogue that can be copied from the snapshot, and the session that keeps it."""

PING_SECONDS: Final = 30.0
"""So often something is asked over the session that keeps the snapshot, lest it counts as idle."""

_RESTARTS: Final = 2


def on_a_snapshot(app: SparkApp, work: Work, declared: Catalogue | None = None) -> None:
    """Take a snapshot of the source and do ``work`` on it, which may be done more than once.

    :param declared: what is copied; by default the project's catalogue.
    :raises SourceError: when the source cannot be read as the catalogue says.
    :raises RecoveryConflict: when a standby took back one snapshot after the other.
    """
    declared = declared or catalogue.load()
    for _ in range(_RESTARTS):
        try:
            _attempt(app, work, declared)
        except RecoveryConflict:
            app.progress("the standby cancelled the copy (conflict with recovery): starting over with a new snapshot")
        else:
            return
    _attempt(app, work, declared)


def await_idle(work: Future[None], connection: Connection) -> None:
    """Wait for ``work`` that asks nothing of ``connection``, which keeps the snapshot, without losing that."""
    while not wait([work], timeout=PING_SECONDS).done:
        connection.execute("select 1")
    work.result()


def _attempt(app: SparkApp, work: Work, declared: Catalogue) -> None:
    with ThreadPoolExecutor(1) as reader:
        known = reader.submit(in_lake, app.catalog, declared).result
        with exported(app.settings, declared) as (connection, snapshot):
            work(app, _copied(app, declared, snapshot), connection, snapshot, known)


def _copied(app: SparkApp, declared: Catalogue, snapshot: Snapshot) -> Catalogue:
    """What of ``declared`` can be copied from the snapshot, after telling what cannot."""
    # What an attempt before left of a table that this one cannot copy is of another snapshot, and perhaps half.
    if snapshot.drifted:
        branches.drop(app.catalog, app.run.branch, [f"bronze.{name}" for name in snapshot.drifted])
    for reason in snapshot.drifted.values():
        app.progress(f"left as it was: {reason}")
    for novelty in snapshot.novelties:
        app.progress(f"not copied, because this lakehouse does not know it: {novelty}")
    return declared.without(snapshot.drifted)
