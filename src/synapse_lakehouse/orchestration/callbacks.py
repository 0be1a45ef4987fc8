"""Airflow callbacks that open and resolve incidents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from synapse_lakehouse.config import homeservers
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.orchestration.dag_homeservers import load_dag_settings
from synapse_lakehouse.printable_text import get_printable_logger

if TYPE_CHECKING:
    from synapse_lakehouse.alerts.incidents import AlertFinding

log = get_printable_logger(__name__)


class AlreadyReportedError(LakehouseError, AirflowFailException):
    """A task failed because of findings that already have alerts; the failure itself needs no alert."""


def alert_on_dag_failure(context: Context) -> None:
    """Callback of a task that failed its last try: opens the incident of its DAG."""
    if not isinstance(context.get("exception"), AlreadyReportedError):
        subject = f"DAG {context['dag'].dag_id}"
        _report(context, _dag_scope(context), [_failure_finding(context, subject)], context["ti"].log_url)


def alert_on_timeout(context: Context) -> None:
    """Callback of a DAG: opens its incident when a run timed out.

    Airflow marks the tasks of such a run as skipped, so no callback of a task runs.
    """
    if context.get("reason") == "timed_out":
        from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind

        subject = f"DAG {context['dag'].dag_id}"
        description = f"run {context['run_id']} exceeded its timeout ({context['dag'].dagrun_timeout}) and was ended"
        _report(context, _dag_scope(context), [AlertFinding(IncidentKind.RUN_FAILED, subject, description)])


def resolve_dag_incident(context: Context) -> None:
    """Callback of the task whose success completes a DAG run: resolves the incident of its DAG."""
    _report(context, _dag_scope(context), [])


def alert_on_task_failure(context: Context) -> None:
    """Callback of a task without downstream tasks that failed its last try: opens the incident of the task.

    If the task reported findings, it did its work. Then its incident is resolved instead.
    """
    if isinstance(context.get("exception"), AlreadyReportedError):
        resolve_task_incident(context)
    else:
        subject = f"task {context['ti'].task_id} of DAG {context['dag'].dag_id}"
        _report(context, _task_scope(context), [_failure_finding(context, subject)], context["ti"].log_url)


def resolve_task_incident(context: Context) -> None:
    """Callback of a task without downstream tasks: resolves its own incident."""
    _report(context, _task_scope(context), [])


def report_findings(settings: Settings, scope: str, findings: Sequence[AlertFinding], page: str = "") -> None:
    """Open and resolve incidents, so that the open incidents of ``scope`` are exactly ``findings``. Never raises.

    :param page: URL with details.
    """
    from synapse_lakehouse.alerts.deliver_incidents import update_incidents
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    with log_failure("no alert could be sent"), closing(open_catalog(settings)) as catalog:
        update_incidents(settings, catalog, scope, findings, page)


@contextmanager
def log_failure(message: str, *arguments: object) -> Iterator[None]:
    """Log an error instead of raising it, for work on which no data depends."""
    try:
        yield
    except Exception:
        log.warning(message, *arguments, exc_info=True)


def _report(context: Context, scope: str, findings: Sequence[AlertFinding], page: str = "") -> None:
    """Report the findings of a DAG's homeserver. Never raises."""
    dag_id = context["dag"].dag_id
    try:
        settings = load_dag_settings(dag_id)
    except (LakehouseError, ValueError):
        log.warning("the settings of %s are wrong", dag_id, exc_info=True)
        _report_wrong_settings(dag_id, scope, findings, page)
    else:
        report_findings(settings, scope, findings, page)


def _report_wrong_settings(dag_id: str, scope: str, findings: Sequence[AlertFinding], page: str) -> None:
    """Send a message about a failed run over the shared sinks. Never raises."""
    from synapse_lakehouse.alerts.deliver_incidents import send_unrecorded

    dag, homeserver = homeservers.split_dag_id(dag_id)
    # Nothing records that a message was sent. So stream_watch would send a message every five minutes.
    if homeserver and dag != "stream_watch":
        with log_failure("no alert could be sent"):
            send_unrecorded(Settings(), homeserver, scope, findings, page)


def add_run_details(findings: Sequence[AlertFinding], run: Run) -> list[AlertFinding]:
    """Add the run and its interval to the text of each finding."""
    return [
        replace(finding, description=f"{finding.description}\nrun {run.run_id}, {_format_interval(run.start, run.end)}")
        for finding in findings
    ]


def _failure_finding(context: Context, subject: str) -> AlertFinding:
    from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind

    task, run_id = context["ti"].task_id, context["run_id"]
    description = f"task {task} of run {run_id} failed; see the end of its log for the reason"
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start and end:
        description = f"{description}\n{_format_interval(start, end)}"
    return AlertFinding(IncidentKind.RUN_FAILED, subject, description)


def _dag_scope(context: Context) -> str:
    return f"dag {context['dag'].dag_id}"


def _task_scope(context: Context) -> str:
    return f"dag {context['dag'].dag_id}, task {context['ti'].task_id}"


def _format_interval(start: datetime, end: datetime) -> str:
    return f"interval {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
