"""Tasks of the DAG ``stream_watch``: check the running Synapse between the daily runs."""

from __future__ import annotations

from contextlib import closing

from airflow.sdk.types import RuntimeTaskInstanceProtocol

from synapse_lakehouse import catalogue
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.orchestration.callbacks import AlreadyReportedError, report_findings
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings
from synapse_lakehouse.orchestration.metrics_tasks import write_metrics
from synapse_lakehouse.orchestration.run_lifecycle import fail_without_retry
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)


def watch_streams(ti: RuntimeTaskInstanceProtocol | None = None) -> None:
    """Sample and record the positions of each stream; alert on vanished writers, regressions and new reports.

    An overdue release and a silent tap are reported first, because these checks do not need the source.

    :param ti: the task instance, from Airflow; alerts link to its log.
    :raises AirflowFailException: when the source cannot be read or is not supported, a setting is invalid, or the lake
        belongs to another homeserver.
    :raises ReadError: when the source is too busy; a retry may succeed.
    """
    from synapse_lakehouse.alerts.live_check import check_lake, check_reports, observe_streams
    from synapse_lakehouse.audit import releases, store
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.iceberg.write import tables
    from synapse_lakehouse.streams.watch import observation_log
    from synapse_lakehouse.streams.watch.observe_stream import describe_observation

    settings = load_task_settings(ti.dag_id if ti else "")
    with fail_without_retry(), closing(open_catalog(settings)) as catalog:
        tables.ensure_audit_tables(catalog)
        published = store.read_releases(catalog)
        if refusal := releases.describe_server_mismatch(
            published[-1] if published else None, str(settings.synapse_server_name)
        ):
            raise LakehouseError(refusal)
        landed, overdue = check_lake(settings, catalog, published)
        report_findings(settings, "lake", overdue, _log_url(ti))
        before = observation_log.read_latest(catalog)
        looks, wrong = observe_streams(settings, catalog, published, before)
    report_findings(settings, "streams", wrong, _log_url(ti))
    with fail_without_retry():
        last_look = max((observation.watched_at for observation in before.values()), default=None)
        reports = check_reports(settings, last_look)
    report_findings(settings, "reports", reports, _log_url(ti))
    for observation in looks:
        log.info("%s", describe_observation(observation))
    write_metrics(settings)
    if landed:
        log.info("replication tap: last listened at %s", landed.isoformat(timespec="seconds"))


def preflight(ti: RuntimeTaskInstanceProtocol | None = None) -> None:
    """Report faults of sequences. When Synapse starts, it repairs some of them; others prevent the start.

    :param ti: the task instance, from Airflow; alerts link to its log.
    :raises AlreadyReportedError: when sequences do not match the tables. The message contains SQL, which no task runs.
    :raises AirflowFailException: when no connection to the source can be opened, its version is not supported, or it
        belongs to another homeserver.
    :raises ReadError: when the source is too busy, or a stream cannot be read; a retry may succeed.
    """
    from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
    from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
    from synapse_lakehouse.postgres.access.preflight import require_server_name, require_supported_version
    from synapse_lakehouse.postgres.access.schema_drift import exclude_drifted_tables
    from synapse_lakehouse.postgres.access.ungranted_additions import exclude_ungranted_additions
    from synapse_lakehouse.postgres.connection import connect, split_by_database
    from synapse_lakehouse.streams.checks import synapse_startup, upgrade_checks

    settings = load_task_settings(ti.dag_id if ti else "")
    wrong = []
    for part in split_by_database(settings, catalogue.load_catalogue()):
        with fail_without_retry(), connect(settings, part.databases[0]) as source:
            require_supported_version(source, part)
            declared = exclude_ungranted_additions(read_source_catalogue(part, source), source)
            declared = exclude_drifted_tables(declared, source, may_be_partial=settings.allows_partial_copy)
            require_server_name(source, declared, settings)
            wrong += synapse_startup.check_startup(source, declared)
    if settings.synapse_state_dsn:
        with fail_without_retry():
            faults = upgrade_checks.find_database_faults(settings)
            wrong += [("state groups of SYNAPSE_DSN", fault) for fault in faults]
    findings = [AlertFinding(IncidentKind.SEQUENCE_BEHIND, subject, fault.message) for subject, fault in wrong]
    report_findings(settings, "preflight", findings, _log_url(ti))
    if wrong:
        raise AlreadyReportedError(
            "Synapse's sequences do not match its tables, so Synapse may not start again. Review this SQL, stop all "
            "processes of Synapse, then run the SQL:\n"
            + "\n".join(f"  {fault.message}\n    {fault.repair}" for _, fault in wrong)
        )


def _log_url(task: RuntimeTaskInstanceProtocol | None) -> str:
    return task.log_url if task else ""
