"""Compare a lake with its source, row by row, and with another lake."""

from collections import Counter
from collections.abc import Mapping

import psycopg
from duckdb import DuckDBPyConnection

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import iceberg_scan_sql
from synapse_lakehouse.postgres.rows.select_sql import build_select


def differences(
    table: catalogue.Table, lake: DuckDBPyConnection, source: psycopg.Connection[tuple[object, ...]]
) -> tuple[int, int]:
    """Rows of ``table`` that only the lake has, and that only the source has; equal rows are counted."""
    in_lake = Counter(lake.execute(f"select * from bronze.{table.name}").fetchall())
    in_source = Counter(source.execute(build_select(table)).fetchall())
    return (in_lake - in_source).total(), (in_source - in_lake).total()


def release_of(settings: Settings) -> Release:
    """The first release of a lake."""
    with duckdb_reader.open_duckdb(settings) as connection:
        return duckdb_reader.list_releases(connection, settings)[-1]


def contents(settings: Settings, snapshots: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Rows and an order-free hash of tables at snapshots."""
    entries = list_catalog_entries(settings)
    with duckdb_reader.open_duckdb(settings) as connection:
        return {
            name: row
            for name, snapshot in snapshots.items()
            for row in connection.execute(
                f"select count(*), sum(hash(t)::hugeint) from {iceberg_scan_sql(entries[name].location, snapshot)} t"
            ).fetchall()
        }
