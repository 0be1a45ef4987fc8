"""Compare a lake with its source, row by row, and with another lake."""

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
    """Rows of ``table`` that only the lake has, and that only the source has; equal rows are counted."""
    in_lake = Counter(lake.execute(f"select * from bronze.{table.name}").fetchall())
    in_source = Counter(source.execute(build_select(table)).fetchall())
    return (in_lake - in_source).total(), (in_source - in_lake).total()


def compare_with_source(lake: Settings) -> dict[str, tuple[int, int]]:
    """Return the tables that differ from the source: rows that only the lake has, and rows that only the source has."""
    differ = {}
    with duckdb_reader.open_duckdb(lake) as reader:
        latest = duckdb_reader.get_release(reader, lake)
        duckdb_reader.create_views(reader, lake, latest, latest.tables)
        for database in Database:
            with psycopg.connect(get_dsn(lake, database)[1]) as source:
                for table in catalogue.load_catalogue().of_database(database).copied_tables():
                    differ[table.name] = differences(table, reader, source)
    return {name: rows for name, rows in differ.items() if rows != (0, 0)}


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


def read_release(lake: Settings, number: int | None = None) -> dict[str, tuple[int, int]]:
    """Rows and hashes of the tables of bronze, silver and gold in a release, by default in the newest one."""
    with duckdb_reader.open_duckdb(lake) as reader:
        release = duckdb_reader.get_release(reader, lake, number)
    return contents(lake, release.tables)
