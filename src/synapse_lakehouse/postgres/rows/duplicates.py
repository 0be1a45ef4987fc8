"""Keys that several rows of a table have although a unique index forbids it, as where a collation changed under it.

Such an index leads to one of the rows and hides the others, so it is not asked: every row is read.
"""

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from synapse_lakehouse.catalogue import Catalogue, Table
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.errors import ReadError

ROWS_PER_PASS: Final = 4_000_000
"""Keys that PostgreSQL is to hold against each other at once: a larger table is read in several goes, each for a part
of the keys."""

_NAMED: Final = 3
_WITHOUT_INDEXES: Final = "set local enable_indexscan = off; set local enable_indexonlyscan = off; " + (
    "set local enable_bitmapscan = off"
)


@dataclass(frozen=True)
class DuplicateKeys:
    """How many keys several rows have, and the first ones of them."""

    keys: int
    first: tuple[tuple[Any, ...], ...]


def list_tables_with_unique_key(catalogue: Catalogue) -> list[Table]:
    """Tables whose key Synapse's schema promises to be unique."""
    return [table for table in catalogue.tables if table.key_enforced and table.primary_key]


def find_duplicate_keys(connection: Connection, table: Table, rows_at_once: int = ROWS_PER_PASS) -> DuplicateKeys:
    """Keys of ``table`` that occur more than once, in a transaction of its own.

    :raises ReadError: when a statement fails, or takes longer than LAKEHOUSE_STATEMENT_TIMEOUT_SECONDS.
    """
    try:
        with connection.transaction():
            connection.execute(_WITHOUT_INDEXES)
            parts = _parts(connection, table, rows_at_once)
            found = [_in_part(connection, table, part, parts) for part in range(parts)]
    except psycopg.Error as error:
        raise ReadError(error) from None
    finally:
        # What vacuum may remove is held back for one table's time, not for all of them.
        connection.rollback()
    first = [key for one in found for key in one.first]
    return DuplicateKeys(sum(one.keys for one in found), tuple(first[:_NAMED]))


def _parts(connection: Connection, table: Table, rows_at_once: int) -> int:
    row = connection.execute("select reltuples from pg_class where oid = to_regclass(%s)", [table.name]).fetchone()
    rows = int(row[0]) if row else 0
    return 1 << max((max(rows, 1) - 1) // rows_at_once, 0).bit_length()


def _in_part(connection: Connection, table: Table, part: int, parts: int) -> DuplicateKeys:
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
        named=sql.Literal(_NAMED),
    )
    rows = connection.execute(statement).fetchall()
    return DuplicateKeys(rows[0][0] if rows else 0, tuple(row[1:] for row in rows))
