"""Find duplicate keys that a damaged unique index did not prevent, for example after a change of collation.

A damaged index finds only one of the rows with a key, so all rows are read without indexes.
"""

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.rows.row_counts import estimate_rows

ROWS_PER_PASS: Final = 4_000_000
"""Maximum number of keys that PostgreSQL compares in one query. A larger table is read in several passes."""

_MAX_EXAMPLES: Final = 3
_WITHOUT_INDEXES: Final = "set local enable_indexscan = off; set local enable_indexonlyscan = off; " + (
    "set local enable_bitmapscan = off"
)


@dataclass(frozen=True)
class DuplicateKeys:
    """The number of duplicate keys of a table, and the first of them."""

    keys: int
    first: tuple[tuple[Any, ...], ...]


def list_tables_with_unique_key(catalogue: Catalogue) -> list[Table]:
    """Return the tables for which Synapse's schema has a unique index on the key."""
    return [table for table in catalogue.tables if table.key_enforced and table.primary_key]


def find_duplicate_keys(connection: Connection, table: Table, rows_per_pass: int = ROWS_PER_PASS) -> DuplicateKeys:
    """Return the keys of ``table`` that occur more than once. The query runs in its own transaction.

    :raises ReadError: when a statement fails, or takes longer than LAKEHOUSE_STATEMENT_TIMEOUT_SECONDS.
    """
    try:
        with connection.transaction():
            connection.execute(_WITHOUT_INDEXES)
            parts = _count_passes(connection, table, rows_per_pass)
            by_part = [_find_in_part(connection, table, part, parts) for part in range(parts)]
    except psycopg.Error as error:
        raise ReadError(error) from None
    finally:
        # With a transaction per table, each PostgreSQL snapshot blocks vacuum only while one table is read.
        connection.rollback()
    first = [key for duplicates in by_part for key in duplicates.first]
    return DuplicateKeys(sum(duplicates.keys for duplicates in by_part), tuple(first[:_MAX_EXAMPLES]))


def _count_passes(connection: Connection, table: Table, rows_per_pass: int) -> int:
    rows = estimate_rows(connection, [table.name]).get(table.name, 0)
    return 1 << max((max(rows, 1) - 1) // rows_per_pass, 0).bit_length()


def _find_in_part(connection: Connection, table: Table, part: int, parts: int) -> DuplicateKeys:
    statement = sql.SQL(
        "select count(*) over (), {key} from {table} where {hash} & {last} = {part}"
        " group by {key} having count(*) > 1 limit {named}"
    ).format(
        key=sql.SQL(", ").join(map(sql.Identifier, table.primary_key)),
        table=sql.Identifier(table.name),
        hash=sql.SQL("hashtextextended(concat_ws(chr(31), {}), 0)").format(
            sql.SQL(", ").join(map(sql.Identifier, table.primary_key))
        ),
        last=sql.Literal(parts - 1),
        part=sql.Literal(part),
        named=sql.Literal(_MAX_EXAMPLES),
    )
    rows = connection.execute(statement).fetchall()
    return DuplicateKeys(rows[0][0] if rows else 0, tuple(row[1:] for row in rows))
