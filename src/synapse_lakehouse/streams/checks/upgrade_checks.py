"""Check whether Synapse can start on its database, as it must after an upgrade, and record the result."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from pyiceberg.catalog import Catalog as IcebergCatalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.catalogue import Catalogue
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.access.absent_objects import read_source_catalogue
from synapse_lakehouse.postgres.collation import find_collation_faults
from synapse_lakehouse.postgres.connection import Connection, connect
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.live_stream_positions import set_short_timeout
from synapse_lakehouse.streams.checks.synapse_startup import find_startup_faults, read_progress

CHECKS_TABLE: Final = "audit.upgrade_checks"


def record_upgrade_checks(settings: Settings, declared: Catalogue, catalog: IcebergCatalog, run: Run) -> None:
    """Append the faults of sequences and of the collation, or one row without a fault for each.

    :raises SourceError: when no connection to the source can be made.
    :raises ReadError: when the source is too busy.
    """
    checked_at = datetime.now(UTC)
    with connect(settings) as connection:
        try:
            set_short_timeout(connection)
            rows = [*_check_sequences(connection, declared), *_check_collation(connection)]
        except psycopg.Error as error:
            raise ReadError(error) from None
    store.append_audit_rows(catalog, CHECKS_TABLE, [row | {"checked_at": checked_at} for row in rows], run)


def _check_sequences(connection: Connection, declared: Catalogue) -> Iterator[dict[str, Any]]:
    present = read_source_catalogue(declared, connection)
    progress = read_progress(connection, present)
    faults = [fault for _, fault in find_startup_faults(present, progress)]
    for fault in faults:
        yield {"subject": "sequences", "fault": fault.message, "advice": f"Stop Synapse and run: {fault.repair}"}
    if not faults:
        yield {"subject": "sequences", "checked": len(progress)}


def _check_collation(connection: Connection) -> Iterator[dict[str, Any]]:
    faults = find_collation_faults(connection)
    for fault in faults:
        yield {"subject": "collation", "fault": fault.message, "advice": fault.advice}
    if not faults:
        yield {"subject": "collation", "checked": 1}
