"""Rows that share a key with rows that changed, where keys may repeat."""

from typing import Final

import pyarrow as pa
from psycopg import sql

from synapse_lakehouse.catalogue import POSTGRES_TYPES, Table
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.select_sql import build_changed_since_condition

_AT_ONCE: Final = 10_000
"""So many keys PostgreSQL is asked for in one statement, to hold them in memory."""


def has_older_versions(connection: Connection, table: Table, keys: pa.Table, transaction: int) -> bool:
    """Whether a row of ``table`` has one of ``keys`` (columns of its primary key) and was written before
    ``transaction``."""
    asking = _statement(table, transaction)
    for first in range(0, keys.num_rows, _AT_ONCE):
        some = keys.slice(first, _AT_ONCE)
        row = connection.execute(asking, [some[name].to_pylist() for name in table.primary_key]).fetchone()
        if row and row[0]:
            return True
    return False


def _statement(table: Table, transaction: int) -> sql.Composed:
    types = {column.name: POSTGRES_TYPES[column.data_type] for column in table.columns}
    # No index is of use to a comparison in which NULLs are equal.
    equal = {name: "is not distinct from" if name in table.nullable_key else "=" for name in table.primary_key}
    return sql.SQL(
        "select exists (select from {table} where not {changed}"
        " and exists (select from unnest({given}) as wanted({key}) where {same}))"
    ).format(
        table=sql.Identifier(table.name),
        given=sql.SQL(", ").join(sql.SQL(f"%s::{types[name]}[]") for name in table.primary_key),
        key=sql.SQL(", ").join(map(sql.Identifier, table.primary_key)),
        same=sql.SQL(" and ").join(
            sql.SQL(f"{{}} {sign} {{}}").format(sql.Identifier(table.name, name), sql.Identifier("wanted", name))
            for name, sign in equal.items()
        ),
        changed=build_changed_since_condition(transaction),
    )
