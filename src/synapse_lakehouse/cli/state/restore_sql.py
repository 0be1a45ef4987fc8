r"""SQL that inserts absent rows and corrects wrong rows. The functions are pure.

The SQL contains values that other servers choose. psycopg quotes the values, and invisible characters are written as
escapes of PostgreSQL (``\u001B``), so that a terminal shows these characters, but does not execute them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from psycopg import sql

from synapse_lakehouse.printable_text import is_visible

_ROWS_PER_STATEMENT: Final = 500

_WITHOUT_INDEXES: Final = tuple(
    f"SET LOCAL {name} = off;" for name in ("enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan")
)


def build_restore_sql(
    tables: Iterable[tuple[str, Sequence[str], Sequence[str], Iterable[Sequence[Any]]]],
    changed: Sequence[Sequence[Any]] = (),
) -> Iterator[str]:
    """Yield the lines of a transaction that inserts rows. A second execution changes nothing.

    :param tables: name, columns, key and rows to insert, for each table. The names are those of the catalogue.
    :param changed: rows of ``state_groups_state`` to correct: state_group, type, state_key, event_before (the right
        event), event_now. A row is deleted if event_before is None, or if another row has event_before.
    """
    tables = list(tables)
    yield "BEGIN;"
    yield f"LOCK TABLE {', '.join(name for name, *_ in tables)} IN SHARE ROW EXCLUSIVE MODE;"
    yield from _WITHOUT_INDEXES
    for name, columns, key, rows in tables:
        yield from _insert_absent(name, ", ".join(columns), key, rows)
    if changed:
        yield from _overwrite(changed)
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
    remaining = iter(rows)
    first = next(remaining, None)
    if first is None:
        return
    yield f"CREATE TEMPORARY TABLE lost_{name} (LIKE {name}) ON COMMIT DROP;"
    yield from _insert(f"lost_{name} ({columns})", chain([first], remaining))
    same_key = " AND ".join(f"present.{column} = lost.{column}" for column in key)
    # PostgreSQL hashes the small table and reads the large one. For NOT EXISTS, releases before 16 hash the large one.
    yield f"ANALYZE lost_{name};"
    yield f"DELETE FROM lost_{name} AS lost USING {name} AS present WHERE {same_key};"  # noqa: S608
    yield f"INSERT INTO {name} ({columns}) SELECT {columns} FROM lost_{name};"  # noqa: S608


def _overwrite(changed: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield "CREATE TEMPORARY TABLE changed_rows"
    yield "  (state_group bigint, type text, state_key text, event_before text, event_now text) ON COMMIT DROP;"
    yield from _insert("changed_rows", changed)
    yield "ANALYZE changed_rows;"
    row = "ROW(present.state_group, present.type, present.state_key, present.event_id)"
    row += " = ROW(changed.state_group, changed.type, changed.state_key, {})"
    same_row = row.format("event_now")
    yield "-- If the row with the earlier event is present as well, the other row is deleted."
    yield "UPDATE changed_rows AS changed SET event_before = NULL FROM state_groups_state AS present"
    yield f"  WHERE {row.format('event_before')};"
    yield "UPDATE state_groups_state AS present SET event_id = event_before FROM changed_rows AS changed"
    yield f"  WHERE {same_row} AND event_before IS NOT NULL;"
    yield "DELETE FROM state_groups_state AS present USING changed_rows AS changed"
    yield f"  WHERE {same_row} AND event_before IS NULL;"


def _insert(target: str, rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    remaining = iter(rows)
    while batch := list(islice(remaining, _ROWS_PER_STATEMENT)):
        yield f"INSERT INTO {target} VALUES"
        values = [f"  ({', '.join(map(quote_value, row))})" for row in batch]
        yield ",\n".join(values) + ";"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code < 1 << 16 else f"\\U{code:08X}"
