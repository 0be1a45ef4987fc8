"""Record during a run whether Synapse can start on its database, as it must after an upgrade."""

from __future__ import annotations

from contextlib import closing

from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)


def record_upgrade_checks(settings: Settings, declared: Catalogue, run: Run) -> None:
    """Append the checks to ``audit.upgrade_checks``. Never raises: the run does not need them."""
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.streams.checks import upgrade_checks

    try:
        with closing(open_catalog(settings)) as catalog:
            upgrade_checks.record_upgrade_checks(settings, declared, catalog, run)
    except Exception:
        log.warning("The sequences and the collation of Synapse's database were not checked", exc_info=True)
