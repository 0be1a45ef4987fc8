"""The lake held against its source, row by row."""

from collections import Counter

import psycopg

from synapse_lakehouse import catalogue
from synapse_lakehouse.lake.duck import DuckDBPyConnection
from synapse_lakehouse.source.projection import select


def differences(
    table: catalogue.Table, lake: DuckDBPyConnection, source: psycopg.Connection[tuple[object, ...]]
) -> tuple[int, int]:
    """Rows of ``table`` that only the lake has, and that only the source has; equal rows are counted."""
    here = Counter(lake.execute(f"select * from bronze.{table.name}").fetchall())
    there = Counter(source.execute(select(table)).fetchall())
    return (here - there).total(), (there - here).total()
