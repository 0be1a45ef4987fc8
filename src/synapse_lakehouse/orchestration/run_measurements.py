"""Measure the sizes of Synapse's database and of the lake, and check whether Synapse can start after an upgrade."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.callbacks import log_failure, report_findings


def record_sizes(settings: Settings, run: Run, interval: timedelta = timedelta()) -> None:
    """Append the sizes to ``audit.relation_sizes``, and report findings. Never raises: the run does not need sizes.

    :param interval: nothing is measured or reported if the newest sizes are younger than this.
    """
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.sizes import history, record

    with log_failure("The sizes of Synapse's database and of the lake were not recorded"):
        with closing(open_catalog(settings)) as catalog:
            if interval and history.is_measured_since(catalog, datetime.now(UTC) - interval):
                return
            record.record_sizes(settings, catalog, run)
        report_sizes(settings)


def report_sizes(settings: Settings) -> None:
    """Report faster growth, overdue vacuums and disks that are soon full."""
    from synapse_lakehouse.alerts.size_findings import check_sizes
    from synapse_lakehouse.iceberg.read.duckdb_reader import open_duckdb
    from synapse_lakehouse.sizes import history, summary

    with closing(open_duckdb(settings)) as connection:
        findings = check_sizes(summary.summarize(history.read_rows(connection, settings)))
    report_findings(settings, "sizes", findings)


def record_upgrade_checks(settings: Settings, declared: Catalogue, run: Run) -> None:
    """Append the checks to ``audit.upgrade_checks``. Never raises: the run does not need them."""
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.streams.checks import upgrade_checks

    with (
        log_failure("The sequences and the collation of Synapse's database were not checked"),
        closing(open_catalog(settings)) as catalog,
    ):
        upgrade_checks.record_upgrade_checks(settings, declared, catalog, run)
