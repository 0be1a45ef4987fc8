"""News of what began and what is over, to whoever is to be told."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from airflow.sdk import Context

from synapse_lakehouse.settings import Settings

if TYPE_CHECKING:
    from synapse_lakehouse.alerts.incidents import Finding

log = logging.getLogger(__name__)


def tell_of_failure(context: Context) -> None:
    """Callback of a task that failed for good: its DAG's incident begins, unless it goes on already."""
    from synapse_lakehouse.alerts.incidents import Finding, Kind

    failed, dag_id = context["ti"], context["dag"].dag_id
    said = f"task {failed.task_id} of run {context['run_id']} failed; its log ends with the reason"
    tell(Settings(), f"dag {dag_id}", [Finding(Kind.RUN_FAILED, f"DAG {dag_id}", said)], failed.log_url)


def tell_of_success(context: Context) -> None:
    """Callback of the task that makes a run of a DAG good: the DAG's incident, if there is one, ends."""
    tell(Settings(), f"dag {context['dag'].dag_id}", [])


def tell(settings: Settings, scope: str, found: Sequence[Finding], page: str = "") -> None:
    """Tell of what began and what ended, now that ``found`` is all that is wrong in ``scope``; never fails.

    :param page: where more is to be seen.
    """
    from synapse_lakehouse.alerts.reporting import report
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog

    try:
        with closing(pyiceberg_catalog(settings)) as catalog:
            report(settings, catalog, scope, found, page)
    except Exception:
        # Whatever is the matter with the alerts, the data are not to suffer.
        log.warning("no alert could be sent", exc_info=True)
