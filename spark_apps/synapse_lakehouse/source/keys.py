"""Keys of a table by ranges of their hash: a cheap way to find where two copies of it differ."""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.source.connection import Connection

RANGE_DIGITS: Final = 3
"""Hexadecimal digits of a key's MD5 that name its range: 4,096 ranges, whatever the key looks like."""


def count_by_range(connection: Connection, table: Table) -> dict[str, int]:
    """Rows of ``table`` in each range of keys that has any."""
    return dict(
        connection.execute(
            sql.SQL("select {range}, count(*) from {table} group by 1").format(
                range=key_range(table), table=sql.Identifier(table.name)
            )
        ).fetchall()
    )


def keys_in_ranges(connection: Connection, table: Table, ranges: Sequence[str]) -> list[tuple[Any, ...]]:
    """Keys of the rows of ``table`` in ``ranges``, their columns in the catalogue's order."""
    return connection.execute(
        sql.SQL("select {key} from {table} where {range} = any(%s)").format(
            key=sql.SQL(", ").join(map(sql.Identifier, table.primary_key)),
            table=sql.Identifier(table.name),
            range=key_range(table),
        ),
        [list(ranges)],
    ).fetchall()


def key_range(table: Table) -> sql.Composed:
    """PostgreSQL's expression of the range of a row's key."""
    return sql.SQL("left(md5(concat_ws(chr(31), {key})), {digits})").format(
        key=sql.SQL(", ").join(map(sql.Identifier, table.primary_key)), digits=sql.Literal(RANGE_DIGITS)
    )


def range_in_lake(table: Table) -> str:
    """Spark's SQL for the same."""
    key = ", ".join(f"cast(`{name}` as string)" for name in table.primary_key)
    return f"left(md5(concat_ws(chr(31), {key})), {RANGE_DIGITS})"
