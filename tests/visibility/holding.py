"""DuckDB views of ``gold.event_visibility`` on a branch or a release."""

from duckdb import DuckDBPyConnection

from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.sql_text import find_table_names
from tests.support.branch_views import create_branch_views

VIEW = "gold.event_visibility"


def bind_branch(connection: DuckDBPyConnection, settings: Settings, branch: str, run_id: str) -> str:
    """Create the view on the tables of a run's branch; return its SQL."""
    duckdb_reader.create_views(connection, settings, None, ["audit.views"])
    rows = connection.execute(
        "select sql from audit.views where run_id = $1 and view_name = $2 order by tried_at desc", [run_id, VIEW]
    ).fetchone()
    assert rows
    create_branch_views(connection, settings, branch, sorted(find_table_names(rows[0])))
    connection.execute(f"create or replace view {VIEW} as {rows[0]}")
    return str(rows[0])


def bind_release(connection: DuckDBPyConnection, settings: Settings, release: Release) -> None:
    """Create the view on the tables of ``release``."""
    duckdb_reader.create_views(connection, settings, release, [VIEW])
