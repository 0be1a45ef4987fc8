"""Whole runs of the command `lakehouse`, and what they found."""

import json

import psycopg

from synapse_lakehouse import catalogue
from synapse_lakehouse.catalogue import Database
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.read import duckdb_reader
from synapse_lakehouse.postgres.connection import get_dsn
from tests.conftest import lakehouse
from tests.support.dataframe_compare import differences


def run(lake: Settings) -> None:
    """Run the DAG, which must succeed."""
    result = lakehouse(lake, "run")
    assert result.returncode == 0, result.stdout + result.stderr


def query(lake: Settings, sql: str) -> list[dict[str, object]]:
    """Return the rows of a query of the newest release."""
    result = lakehouse(lake, "query", sql, "--format", "json")
    assert result.returncode == 0, result.stderr
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


def list_faults(lake: Settings) -> list[dict[str, object]]:
    """Return failed checks of all runs, and damage in the newest release."""
    return [
        *query(lake, "select stage, expectation, subject, observed from audit.checks where not success"),
        *query(lake, "select check_name, subject, expected, found from gold.state_integrity where severity <> 'info'"),
    ]


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
