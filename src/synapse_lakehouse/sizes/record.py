"""Measure Synapse's database and the lake, and append the sizes to ``audit.relation_sizes``."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.postgres.relation_size import RelationSize
from synapse_lakehouse.postgres.relation_sizes import read_relation_sizes
from synapse_lakehouse.sizes.history import SIZES_TABLE
from synapse_lakehouse.sizes.warehouse import measure_warehouse


def record_sizes(settings: Settings, catalog: Catalog, run: Run) -> None:
    """Measure all relations, the database, the replication slots and the lake, and append a row for each.

    :raises SourceError: when no connection to the source can be made.
    :raises ReadError: when the source is too busy to be measured.
    """
    measured_at = datetime.now(UTC)
    sizes = read_relation_sizes(settings)
    rows: list[dict[str, Any]] = [asdict(size) for size in sizes]
    for row in rows:
        if row["kind"] == "database":
            row["free_bytes"] = _compute_free_bytes(settings, sizes)
    used, free = measure_warehouse(settings, catalog)
    rows.append({"kind": "lake", "name": "warehouse", "bytes": used, "free_bytes": free})
    store.append_audit_rows(catalog, SIZES_TABLE, [row | {"measured_at": measured_at} for row in rows], run)


def _compute_free_bytes(settings: Settings, sizes: Sequence[RelationSize]) -> int | None:
    """Return LAKEHOUSE_SOURCE_DISK_BYTES minus the database and the WAL of the oldest slot, which has the most WAL."""
    if settings.lakehouse_source_disk_bytes is None:
        return None
    database = sum(size.bytes or 0 for size in sizes if size.kind == "database")
    wal = max((size.bytes or 0 for size in sizes if size.kind == "replication_slot"), default=0)
    return settings.lakehouse_source_disk_bytes - database - wal
