"""Measure the sizes of Synapse's database and of the lake during a run."""

from contextlib import closing

from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.printable_text import get_printable_logger

log = get_printable_logger(__name__)


def record_sizes(settings: Settings, run: Run) -> None:
    """Append the sizes to ``audit.relation_sizes``. Never raises, because the run does not need them."""
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
    from synapse_lakehouse.sizes import record

    try:
        with closing(open_catalog(settings)) as catalog:
            record.record_sizes(settings, catalog, run)
    except Exception:
        log.warning("The sizes of Synapse's database and of the lake were not recorded", exc_info=True)
