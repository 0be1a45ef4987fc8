"""Find unchanged rows with the same key as changed rows, in tables whose keys may repeat."""

from typing import Final

import pyarrow as pa
from psycopg import sql

from synapse_lakehouse.catalogue import POSTGRES_TYPES, Table
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.select_sql import build_changed_since_condition

_KEYS_PER_STATEMENT: Final = 10_000
"""Maximum number of keys in one statement, because PostgreSQL loads them into memory."""


def has_older_versions(connection: Connection, table: Table, keys: pa.Table, transaction: int) -> bool:
    """Return whether a row of ``table`` written before ``transaction`` has one of ``keys`` (primary key columns)."""
    statement = _build_statement(table, transaction)
    for first in range(0, keys.num_rows, _KEYS_PER_STATEMENT):
        batch = keys.slice(first, _KEYS_PER_STATEMENT)
        row = connection.execute(statement, [batch[name].to_pylist() for name in table.primary_key]).fetchone()
        if row and row[0]:
            return True
    return False


def _build_statement(table: Table, transaction: int) -> sql.Composed:
    types = {column.name: POSTGRES_TYPES[column.data_type] for column in table.columns}
    # ``is not distinct from`` treats NULLs as equal, but cannot use an index.
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
