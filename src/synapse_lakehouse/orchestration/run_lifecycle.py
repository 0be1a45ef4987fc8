"""Tasks that open and close a run: preconditions, lake lease and branch."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NoReturn

from airflow.sdk import Context, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException

from synapse_lakehouse import catalogue
from synapse_lakehouse.config import homeservers
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.orchestration import run_measurements
from synapse_lakehouse.orchestration.callbacks import AlreadyReportedError
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings
from synapse_lakehouse.printable_text import get_printable_logger

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from synapse_lakehouse.iceberg.lease.lease import Lease, LeaseError

log = get_printable_logger(__name__)

_LEASE_POLL: Final = timedelta(seconds=30)
_SIZE_INTERVAL: Final = timedelta(hours=20)
"""A maintenance run measures sizes if the newest sizes are older than this. So each day has sizes on any schedule."""


@contextmanager
def fail_without_retry() -> Iterator[None]:
    """Convert an expected error into ``AirflowFailException``, so that Airflow does not retry a task in vain.

    :raises AirflowFailException: with the message of the error.
    """
    try:
        yield
    except LakehouseError as error:
        if error.is_transient:
            raise
        raise AirflowFailException(str(error)) from None


def get_run(context: Context) -> Run:
    """Return the run of a task.

    :raises AirflowFailException: when the run has no data interval, because it was triggered without a logical date.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise AirflowFailException(
            "This run has no data interval. Trigger it with a logical date: the run then covers the last complete "
            "interval of the schedule before that date."
        )
    return Run(lake_run_id(context["dag"].dag_id, context["run_id"]), start, end)


def lake_run_id(dag_id: str, run_id: str) -> str:
    """Return the ID of a run in the lake: Airflow's run ID, prefixed with the DAG ID for DAGs other than ``lakehouse``.

    Airflow's run IDs are unique only within a DAG; two runs with the same ID would share a lease and a branch.
    """
    dag, _ = homeservers.split_dag_id(dag_id)
    return run_id if dag == "lakehouse" else f"{dag} {run_id}"


def open_run() -> None:
    """Check the preconditions, acquire the lake lease, prepare the run's branch, and record sizes.

    If an earlier run did not finish its copy, the branch contains the copied rows. Otherwise the branch is new. Also
    record whether Synapse can start after an upgrade.

    :raises AirflowFailException: for a future interval, an invalid setting, a source that cannot be read, a lake of
        another homeserver, or a lease that another run still holds after the wait; nothing was changed.
    :raises AirflowRescheduleException: when another run holds the lease; the task frees its slots and tries again.
    """
    from synapse_lakehouse import configuration_problems
    from synapse_lakehouse.postgres.access import preflight

    context, declared = get_current_context(), catalogue.load_catalogue()
    run, settings = get_run(context), load_task_settings(context["dag"].dag_id)
    with fail_without_retry():
        run.require_complete()
        # Validate the settings of later tasks too, so that an invalid setting fails the run before the copy.
        problems = configuration_problems.find_problems(declared, settings)
        if messages := [problem.message for problem in problems if problem.stops_runs]:
            raise LakehouseError("\n".join(messages))
        preflight.check_source(settings, declared)
    _open(run, settings)
    run_measurements.record_sizes(settings, run)
    run_measurements.record_upgrade_checks(settings, declared, run)


def open_maintenance() -> None:
    """Open a maintenance run like :func:`open_run`, but check neither the settings nor the source.

    The maintenance of files does not need the source. Record sizes only if no run has measured them for 20 hours. Do
    not check whether Synapse can start.

    :raises AirflowFailException: for a future interval, a lake of another homeserver, or a lease that another run
        still holds after the wait.
    :raises AirflowRescheduleException: as :func:`open_run`.
    """
    context = get_current_context()
    run = get_run(context)
    with fail_without_retry():
        run.require_complete()
    settings = load_task_settings(context["dag"].dag_id)
    _open(run, settings)
    run_measurements.record_sizes(settings, run, _SIZE_INTERVAL)


def close_run() -> None:
    """Release the lake lease, whether or not the run succeeded.

    The branch of a failed run stays for inspection. If the copy failed, the next run resumes it.

    :raises AirflowFailException: when the disk is full.
    :raises AlreadyReportedError: when the settings are wrong. An earlier task failed because of them and raised an
        alert. The lease is not released, so it expires.
    """
    from synapse_lakehouse.audit import store
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run = get_run(context)
    try:
        settings = load_task_settings(context["dag"].dag_id)
    except AirflowFailException as error:
        raise AlreadyReportedError(str(error)) from None
    with closing(open_catalog(settings)) as catalog:
        try:
            create_lease(run, catalog, settings).release(is_undone=not store.is_copy_complete(catalog, run))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise AirflowFailException(
                "The disk is full, so the lake lease could not be released. The lease expires "
                f"{settings.lakehouse_lease_seconds} s after its last renewal. Free disk space before the next run."
            ) from None


def report_reconciliation() -> None:
    """Log the slices that were compared with the source, their durations, and the repairs."""
    from synapse_lakehouse.audit import store
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), load_task_settings(context["dag"].dag_id)
    with closing(open_catalog(settings)) as catalog:
        slices, repairs = (
            store.read_run_rows(catalog, table, run.run_id) for table in ("audit.reconciliation", "audit.repairs")
        )
    for row in slices:
        name, number, of = row["table_name"], row["slice"] + 1, row["slices"]
        if row["differing"] is None:
            log.warning(
                "%s, slice %s of %s was not compared, because the query was cancelled after %.1f s. If this repeats, "
                "increase LAKEHOUSE_PARITY_SECONDS.", name, number, of, row["seconds"],
            )  # fmt: skip
        else:
            log.info(
                "%s, slice %s of %s: %s rows, %s of %s ranges differed, %.2f s", name, number, of, row["rows"],
                row["differing"], row["ranges"], row["seconds"],
            )  # fmt: skip
    for row in repairs:
        log.warning(
            "%s was repaired: %s rows were missing, %s outdated, %s surplus",
            row["table_name"], row["rows_added"], row["rows_changed"], row["rows_removed"],
        )  # fmt: skip


def replace_earlier_lake(catalog: Catalog) -> None:
    """Discard a lake of an earlier format and create empty tables, into which the run copies the whole source."""
    from synapse_lakehouse.iceberg.write import discard_earlier_format, tables
    from synapse_lakehouse.streams.checks.operator_acknowledgements import ACKNOWLEDGED_FLAG

    retained = discard_earlier_format.discard(catalog, ACKNOWLEDGED_FLAG)
    tables.ensure_tables(catalog, catalogue.load_catalogue())
    log.warning(
        "An earlier version of synapse-lakehouse wrote this lake, with other names of tables and columns. This run "
        "rebuilds it from Synapse's database. The run deletes earlier releases. It retains %s acknowledged ranges of "
        "stream IDs, the commands of the replication tap, and the logs of incidents and of compression.",
        retained,
    )


def skip_if_rehearsal(context: Context) -> None:
    """Skip publishing in a rehearsal."""
    if context["params"]["rehearse"]:
        raise AirflowSkipException("This is a rehearsal: all checks passed, and nothing is published.")


def create_lease(run: Run, catalog: Catalog, settings: Settings) -> Lease:
    """Return the lake lease for ``run``; it is not acquired yet."""
    from synapse_lakehouse.iceberg.lease.lease import Lease

    return Lease(catalog, holder=run.run_id, branch=run.branch, seconds=settings.lakehouse_lease_seconds)


def _wait_for_lease(error: LeaseError, longest: timedelta) -> NoReturn:
    """Let Airflow start the task again later. A waiting task would occupy a slot that the other run needs."""
    context = get_current_context()
    now = datetime.now(UTC)
    started = context["ti"].get_first_reschedule_date(context) or now
    if now + _LEASE_POLL > started + longest:
        raise AirflowFailException(str(error)) from None
    log.warning("%s", error)
    raise AirflowRescheduleException(now + _LEASE_POLL)  # type: ignore[no-untyped-call]


def _open(run: Run, settings: Settings) -> None:
    from synapse_lakehouse.audit import releases, store
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.iceberg.lease.lease import LeaseError
    from synapse_lakehouse.iceberg.write import branches, discard_earlier_format, tables

    with closing(open_catalog(settings)) as catalog:
        latest = store.read_latest_release(catalog) if catalog.table_exists(releases.RELEASES_TABLE) else None
        if refusal := releases.describe_server_mismatch(latest, str(settings.synapse_server_name)):
            raise AirflowFailException(refusal)
        if not discard_earlier_format.is_earlier(catalog):
            tables.ensure_tables(catalog, catalogue.load_catalogue())
        lease = create_lease(run, catalog, settings)
        try:
            crashed = lease.acquire()
        except LeaseError as error:
            _wait_for_lease(error, timedelta(seconds=settings.lakehouse_lease_wait_seconds))
        # The format is checked again: while this run waited for the lease, another run may have rebuilt the lake.
        if discard_earlier_format.is_earlier(catalog):
            replace_earlier_lake(catalog)
            lease.settle()
            crashed = ()
        if run.branch not in crashed:
            branches.drop_branch(catalog, run.branch)
        latest = store.read_latest_release(catalog)
        if latest and (ahead := branches.restore_release(catalog, latest.tables)):
            log.warning(
                "A run stopped while it published: %s tables were ahead of release %s. This run set them back to the "
                "release, and copies the changes again.", len(ahead), latest.number,
            )  # fmt: skip
        if crashed:
            log.warning("The run %s did not finish, so this run resumes its copy", crashed[-1])
            branches.resume_branch(catalog, crashed, run.branch)
            lease.settle()
