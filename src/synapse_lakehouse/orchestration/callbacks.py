"""News of what began and what is over, to whoever is to be told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.printable_text import get_printable_logger

if TYPE_CHECKING:
    from synapse_lakehouse.alerts.incidents import AlertFinding

log = get_printable_logger(__name__)


class AlreadyReportedError(LakehouseError, AirflowFailException):
    """A task failed over what it found and told people of; that it failed is no further news."""


def alert_on_dag_failure(context: Context) -> None:
    """Callback of a task that failed for good: its DAG's incident begins, unless it goes on already."""
    if not isinstance(context.get("exception"), AlreadyReportedError):
        dag_id = context["dag"].dag_id
        report_findings(Settings(), f"dag {dag_id}", [_failed(context, f"DAG {dag_id}")], context["ti"].log_url)


def alert_on_timeout(context: Context) -> None:
    """Callback of a DAG: its incident begins when a run took longer than it may. Airflow then ends the run's tasks as
    skipped, so that none of them tells."""
    if context.get("reason") == "timed_out":
        from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind

        subject = f"DAG {context['dag'].dag_id}"
        said = f"run {context['run_id']} took longer than it may ({context['dag'].dagrun_timeout}) and was ended"
        report_findings(
            Settings(), f"dag {context['dag'].dag_id}", [AlertFinding(IncidentKind.RUN_FAILED, subject, said)]
        )


def resolve_dag_incident(context: Context) -> None:
    """Callback of the task that makes a run of a DAG good: the DAG's incident, if there is one, ends."""
    report_findings(Settings(), f"dag {context['dag'].dag_id}", [])


def alert_on_task_failure(context: Context) -> None:
    """As :func:`alert_on_dag_failure`, of a task that no other waits for: the incident is its own, which the success of
    another does not end. One that told of what it found could do its work, so its incident is over."""
    if isinstance(context.get("exception"), AlreadyReportedError):
        resolve_task_incident(context)
    else:
        subject = f"task {context['ti'].task_id} of DAG {context['dag'].dag_id}"
        report_findings(Settings(), _own(context), [_failed(context, subject)], context["ti"].log_url)


def resolve_task_incident(context: Context) -> None:
    """Callback of a task that no other waits for: its own incident, if there is one, ends."""
    report_findings(Settings(), _own(context), [])


def report_findings(settings: Settings, scope: str, found: Sequence[AlertFinding], page: str = "") -> None:
    """Tell of what began and what ended, now that ``found`` is all that is wrong in ``scope``; never fails.

    :param page: where more is to be seen.
    """
    from synapse_lakehouse.alerts.notify import update_incidents
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    try:
        with closing(open_catalog(settings)) as catalog:
            update_incidents(settings, catalog, scope, found, page)
    except Exception:
        # Whatever is the matter with the alerts, the data are not to suffer.
        log.warning("no alert could be sent", exc_info=True)


def add_run_details(found: Sequence[AlertFinding], run: Run) -> list[AlertFinding]:
    """``found``, each with the run that found it."""
    return [replace(one, said=f"{one.said}\nrun {run.run_id}, {_interval(run.start, run.end)}") for one in found]


def _failed(context: Context, subject: str) -> AlertFinding:
    from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind

    said = f"task {context['ti'].task_id} of run {context['run_id']} failed; its log ends with the reason"
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    return AlertFinding(IncidentKind.RUN_FAILED, subject, f"{said}\n{_interval(start, end)}" if start and end else said)


def _own(context: Context) -> str:
    return f"dag {context['dag'].dag_id}, task {context['ti'].task_id}"


def _interval(start: datetime, end: datetime) -> str:
    return f"interval {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
