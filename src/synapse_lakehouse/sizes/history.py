"""Read the newest rows of ``audit.relation_sizes``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from synapse_lakehouse.sizes.growth import EARLIER, RECENT
from synapse_lakehouse.sizes.summary import SizeRow

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.catalog import Catalog

    from synapse_lakehouse.config.settings import Settings

SIZES_TABLE: Final = "audit.relation_sizes"

_WINDOW: Final = RECENT + EARLIER


def is_measured_since(catalog: Catalog, since: datetime) -> bool:
    """Return whether there are rows since a time."""
    from pyiceberg.expressions import GreaterThanOrEqual

    row_filter = GreaterThanOrEqual(term="measured_at", value=since.isoformat())
    return bool(catalog.load_table(SIZES_TABLE).scan(row_filter=row_filter, limit=1).to_arrow().num_rows)


def read_rows(connection: DuckDBPyConnection, settings: Settings) -> list[SizeRow]:
    """Return the rows of the last five weeks; an empty list if nothing was measured yet."""
    from synapse_lakehouse.iceberg.read import duckdb_reader
    from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries

    if SIZES_TABLE not in list_catalog_entries(settings):
        return []
    duckdb_reader.create_views(connection, settings, None, [SIZES_TABLE])
    since = (datetime.now(UTC) - _WINDOW).isoformat()
    rows = duckdb_reader.read_rows(connection, f"from {SIZES_TABLE} where measured_at >= '{since}'::timestamptz")
    return [SizeRow.of(row) for row in rows]
