"""Write the page of the lakehouse after a publication."""

from __future__ import annotations

from contextlib import closing

from airflow.sdk.types import RuntimeTaskInstanceProtocol

from synapse_lakehouse.orchestration.callbacks import report_findings
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)


def write_page(ti: RuntimeTaskInstanceProtocol | None = None) -> None:
    """Write the page of the latest release. A failure raises an alert, but no error, because the release is published.

    :param ti: the task instance, from Airflow; the page links to this Airflow.
    """
    from synapse_lakehouse.alerts.incidents import AlertFinding, IncidentKind
    from synapse_lakehouse.iceberg.read.duckdb_reader import open_duckdb
    from synapse_lakehouse.report import page

    settings, url, findings = load_task_settings(ti.dag_id if ti else ""), ti.log_url if ti else "", []
    try:
        with closing(open_duckdb(settings)) as connection:
            path = page.write_page(connection, settings, airflow=url.partition("/dags/")[0])
        log.info("The page of this release is %s", path.as_uri())
    except Exception:
        log.warning("The page of the lakehouse was not written; the release is published", exc_info=True)
        description = "the page of the latest release was not written; see the log of the task"
        findings = [AlertFinding(IncidentKind.PAGE_MISSING, "the page of the lakehouse", description)]
    report_findings(settings, "page", findings, url)
