"""Compare the rows of a lake with its source, and its tables with another lake."""

from collections import Counter
from collections.abc import Mapping

import psycopg
from duckdb import DuckDBPyConnection

from synapse_lakehouse import catalogue
from synapse_lakehouse.audit.releases import Release
from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.iceberg.read.catalog_entries import list_catalog_entries
from synapse_lakehouse.iceberg.read.sql_text import iceberg_scan_sql
from synapse_lakehouse.postgres.connection import get_dsn
from synapse_lakehouse.postgres.rows.select_sql import build_select


def differences(
    table: catalogue.Table, lake: DuckDBPyConnection, source: psycopg.Connection[tuple[object, ...]]
) -> tuple[int, int]:
    """Return how many rows of ``table`` only the lake has, and how many only the source has. Repeated rows count."""
    in_lake = Counter(lake.execute(f"select * from bronze.{table.name}").fetchall())
    in_source = Counter(source.execute(build_select(table)).fetchall())
    return (in_lake - in_source).total(), (in_source - in_lake).total()


def compare_with_source(lake: Settings) -> dict[str, tuple[int, int]]:
    """Return the :func:`differences` of each table that differs from the source."""
    row_counts = {}
    with duckdb_reader.open_duckdb(lake) as reader:
        latest = duckdb_reader.get_release(reader, lake)
        duckdb_reader.create_views(reader, lake, latest, latest.tables)
        for database in Database:
            with psycopg.connect(get_dsn(lake, database)[1]) as source:
                for table in catalogue.load_catalogue().of_database(database).copied_tables():
                    row_counts[table.name] = differences(table, reader, source)
    return {name: counts for name, counts in row_counts.items() if counts != (0, 0)}


def release_of(settings: Settings) -> Release:
    """Return the first release of a lake."""
    with duckdb_reader.open_duckdb(settings) as connection:
        return duckdb_reader.list_releases(connection, settings)[-1]


def contents(settings: Settings, snapshots: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the row count and an order-free hash of each table at its Iceberg snapshot."""
    entries = list_catalog_entries(settings)
    with duckdb_reader.open_duckdb(settings) as connection:
        return {
            name: row
            for name, snapshot in snapshots.items()
            for row in connection.execute(
                f"select count(*), sum(hash(t)::hugeint) from {iceberg_scan_sql(entries[name].location, snapshot)} t"
            ).fetchall()
        }


def read_release(lake: Settings, number: int | None = None) -> dict[str, tuple[int, int]]:
    """Return the :func:`contents` of all tables of a release, by default of the newest release."""
    with duckdb_reader.open_duckdb(lake) as reader:
        release = duckdb_reader.get_release(reader, lake, number)
    return contents(lake, release.tables)
