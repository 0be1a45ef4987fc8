r"""SQL that inserts rows where they are absent. Pure.

The SQL contains values that other servers choose. psycopg quotes them, and invisible characters are written as escapes
of PostgreSQL (``\u001B``), so that a terminal shows them, and executes none.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from psycopg import sql

from synapse_lakehouse.printable_text import is_visible

_ROWS_PER_STATEMENT: Final = 500

_WITHOUT_INDEXES: Final = tuple(
    f"SET LOCAL {name} = off;" for name in ("enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan")
)


def build_restore_sql(
    tables: Iterable[tuple[str, Sequence[str], Sequence[str], Iterable[Sequence[Any]]]],
) -> Iterator[str]:
    """Yield the lines of a transaction that inserts rows. A second execution changes nothing.

    :param tables: name, columns, key and rows of each table. The names are those of the catalogue.
    """
    yield "BEGIN;"
    yield from _WITHOUT_INDEXES
    for name, columns, key, rows in tables:
        yield from _insert_absent(name, ", ".join(columns), key, rows)
    yield "COMMIT;"


def quote_value(value: object) -> str:
    """Return a number or text as a literal of PostgreSQL, on one line and without invisible characters."""
    literal = sql.Literal(value).as_string().strip()
    if all(map(is_visible, literal)):
        return literal
    # Without a backslash, psycopg writes a plain literal, in which escapes have no effect.
    escaped = literal if literal.startswith("E") else f"E{literal}"
    return "".join(character if is_visible(character) else _escape(character) for character in escaped)


def _insert_absent(name: str, columns: str, key: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield f"CREATE TEMPORARY TABLE lost_{name} (LIKE {name}) ON COMMIT DROP;"
    remaining = iter(rows)
    while batch := list(islice(remaining, _ROWS_PER_STATEMENT)):
        yield f"INSERT INTO lost_{name} ({columns}) VALUES"
        values = [f"  ({', '.join(map(quote_value, row))})" for row in batch]
        yield ",\n".join(values) + ";"
    same_key = " AND ".join(f"present.{column} = lost.{column}" for column in key)
    yield f"INSERT INTO {name} ({columns}) SELECT {columns} FROM lost_{name} AS lost"  # noqa: S608
    yield f"  WHERE NOT EXISTS (SELECT FROM {name} AS present WHERE {same_key});"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code < 1 << 16 else f"\\U{code:08X}"
