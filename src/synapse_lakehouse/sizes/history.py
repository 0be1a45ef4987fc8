"""Read the newest rows of ``audit.relation_sizes``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from synapse_lakehouse.sizes.growth import EARLIER, RECENT
from synapse_lakehouse.sizes.summary import SizeRow

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import DataScan

    from synapse_lakehouse.config.settings import Settings

SIZES_TABLE: Final = "audit.relation_sizes"

_WINDOW: Final = RECENT + EARLIER


def read_rows(catalog: Catalog) -> list[SizeRow]:
    """Return the rows of the last five weeks."""
    return [SizeRow.of(row) for row in _scan(catalog, datetime.now(UTC) - _WINDOW).to_arrow().to_pylist()]


def is_measured_since(catalog: Catalog, since: datetime) -> bool:
    """Return whether there are rows since a time."""
    return bool(_scan(catalog, since, limit=1).to_arrow().num_rows)


def _scan(catalog: Catalog, since: datetime, limit: int | None = None) -> DataScan:
    from pyiceberg.expressions import GreaterThanOrEqual

    row_filter = GreaterThanOrEqual(term="measured_at", value=since.isoformat())
    return catalog.load_table(SIZES_TABLE).scan(row_filter=row_filter, limit=limit)


def read_rows_by_duckdb(connection: DuckDBPyConnection, settings: Settings) -> list[SizeRow]:
    """Return the rows of the last five weeks; an empty list if nothing was measured yet."""
    from synapse_lakehouse.iceberg.read import duckdb_reader
    from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries

    if SIZES_TABLE not in list_catalog_entries(settings):
        return []
    duckdb_reader.create_views(connection, settings, None, [SIZES_TABLE])
    since = (datetime.now(UTC) - _WINDOW).isoformat()
    rows = duckdb_reader.read_rows(connection, f"from {SIZES_TABLE} where measured_at >= '{since}'::timestamptz")
    return [SizeRow.of(row) for row in rows]
