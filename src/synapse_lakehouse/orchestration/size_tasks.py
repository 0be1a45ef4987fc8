"""Measure the sizes of Synapse's database and of the lake during a run, and report growth and overdue vacuums."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.callbacks import report_findings
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)


def record_sizes(settings: Settings, run: Run, interval: timedelta = timedelta()) -> None:
    """Append the sizes to ``audit.relation_sizes``, and report findings. Never raises: the run does not need sizes.

    :param interval: nothing happens if the newest sizes are not older.
    """
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.sizes import history, record

    try:
        with closing(open_catalog(settings)) as catalog:
            if interval and history.is_measured_since(catalog, datetime.now(UTC) - interval):
                return
            record.record_sizes(settings, catalog, run)
        report_sizes(settings)
    except Exception:
        log.warning("The sizes of Synapse's database and of the lake were not recorded", exc_info=True)


def report_sizes(settings: Settings) -> None:
    """Report faster growth, overdue vacuums and disks that are soon full."""
    from synapse_lakehouse.alerts.size_findings import check_sizes
    from synapse_lakehouse.iceberg.read.duckdb_reader import open_duckdb
    from synapse_lakehouse.sizes import history, summary

    with closing(open_duckdb(settings)) as connection:
        findings = check_sizes(summary.summarize(history.read_rows(connection, settings)))
    report_findings(settings, "sizes", findings)
