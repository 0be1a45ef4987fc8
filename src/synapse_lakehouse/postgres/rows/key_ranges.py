"""Divide a table into ranges of hashed keys. `lake_maintenance` compares some ranges each day."""

from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table

RANGE_DIGITS: Final = 3
"""Number of hexadecimal digits of a key's MD5 that name its range. Three digits give 4,096 ranges per table."""


def key_range_postgres_sql(table: Table) -> sql.Composed:
    """Return PostgreSQL's expression for the range of a row's key. It sorts by bytes, as in Spark."""
    return sql.SQL('left(md5(concat_ws(chr(31), {key})), {digits}) collate "C"').format(
        key=sql.SQL(", ").join(map(sql.Identifier, table.primary_key)), digits=sql.Literal(RANGE_DIGITS)
    )


def key_range_spark_sql(table: Table) -> str:
    """Return Spark's SQL for the same range."""
    key = ", ".join(f"cast(`{name}` as string)" for name in table.primary_key)
    return f"left(md5(concat_ws(chr(31), {key})), {RANGE_DIGITS})"
