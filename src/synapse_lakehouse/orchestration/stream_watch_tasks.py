"""What is asked of the running Synapse between the runs."""

from __future__ import annotations

from contextlib import closing

from airflow.sdk.types import RuntimeTaskInstanceProtocol

from synapse_lakehouse import catalogue
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.callbacks import AlreadyReportedError, report_findings
from synapse_lakehouse.orchestration.run_lifecycle import fail_without_retry
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)


def watch_streams(ti: RuntimeTaskInstanceProtocol | None = None) -> None:
    """Look at every stream of the running Synapse, keep what was seen, and say what is behind.

    Whether the lake is overdue or its tap silent is told first, as it does not hang on the source.

    :param ti: the task that runs this, as Airflow gives it; its log shows more.
    :raises AirflowFailException: when the source cannot be read as it is, or a setting means nothing.
    :raises ReadError: when it is too busy to be watched; a retry may find it at rest.
    """
    from synapse_lakehouse.alerts.stream_check import check_lake, observe_streams
    from synapse_lakehouse.audit import store
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.iceberg.write import tables
    from synapse_lakehouse.streams.watch.observation import describe_observation

    settings = Settings()
    with fail_without_retry(), closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        releases = store.read_releases(catalog)
        landed, overdue = check_lake(settings, catalog, releases)
        report_findings(settings, "lake", overdue, _log(ti))
        looks, wrong = observe_streams(settings, catalog, releases)
    report_findings(settings, "streams", wrong, _log(ti))
    for one in looks:
        log.info("%s", describe_observation(one))
    if landed:
        log.info("replication tap: last listened at %s", landed.isoformat(timespec="seconds"))


def preflight(ti: RuntimeTaskInstanceProtocol | None = None) -> None:
    """Say what Synapse would refuse or mend at its next start, before somebody restarts it.

    :param ti: the task that runs this, as Airflow gives it; its log shows more.
    :raises AlreadyReportedError: naming what does not fit, with the SQL that mends it, to be reviewed; it is never run.
    :raises AirflowFailException: when the source cannot be connected to.
    :raises ReadError: when it is too busy to be asked, or a stream cannot be read; a retry may find it at rest.
    """
    from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
    from synapse_lakehouse.postgres.access.schema_drift import exclude_drifted_tables
    from synapse_lakehouse.postgres.connection import connect
    from synapse_lakehouse.streams.checks import synapse_startup

    settings = Settings()
    with fail_without_retry(), connect(settings) as source:
        known = exclude_drifted_tables(catalogue.load_catalogue(), source, may_be_partial=settings.allows_partial_copy)
        wrong = synapse_startup.check_startup(source, known)
    found = [AlertFinding(IncidentKind.SEQUENCE_BEHIND, subject, fault.message) for subject, fault in wrong]
    report_findings(settings, "preflight", found, _log(ti))
    if wrong:
        raise AlreadyReportedError(
            "Synapse's sequences do not fit its database. Review what mends it, and run it with all of Synapse "
            "stopped:\n" + "\n".join(f"  {fault.message}\n    {fault.repair}" for _, fault in wrong)
        )


def _log(task: RuntimeTaskInstanceProtocol | None) -> str:
    return task.log_url if task else ""
