"""DuckDB views of tables on a branch."""

from collections.abc import Iterable
from contextlib import closing

from duckdb import DuckDBPyConnection

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.read.sql_text import iceberg_scan_sql, quote_table_name


def create_branch_views(connection: DuckDBPyConnection, settings: Settings, branch: str, names: Iterable[str]) -> None:
    """Create a view of each existing table on ``branch``, or on main if the table does not have the branch."""
    with closing(open_catalog(settings)) as catalog:
        for name in filter(catalog.table_exists, names):
            table = catalog.load_table(name)
            ref = table.refs().get(branch)
            scan = iceberg_scan_sql(table.metadata_location, ref.snapshot_id if ref else None)
            connection.execute(f"create or replace view {quote_table_name(name)} as from {scan}")
