"""SQL that reads the rows of a B-tree index by a plain index scan.

An index scan searches keys in the index and returns the rows to which the entries point. PostgreSQL does not compare a
row's key with the key of its entry, because both are equal in an intact index. So a wrong entry returns the row of
another key. Three observations find each wrong or missing entry of a range of keys:

1. A row with a key outside the range: its entry is wrong.
2. A row that a search for the row's own key does not return: its entry is wrong, and its own entry is missing.
3. A row of the heap that the scan returns twice, or not at all: an entry is wrong, or missing.

A wrong entry points to a row outside or inside the range. If the row is outside, observation 1 finds the entry. If the
row is inside, either its own entry exists, so that the row occurs twice (3), or its own entry is missing (2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any, Final

from psycopg import sql

from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.indexes.btree_index import BtreeIndex

Key = tuple[Any, ...]
"""A key of an index: one value for each key column."""

_TRUE: Final = sql.SQL("true")
_CANDIDATES: Final = 8

PLAIN_INDEX_SCANS_ONLY: Final = "; ".join(
    f"set local {name} = off"
    for name in (
        "enable_seqscan", "enable_bitmapscan", "enable_indexonlyscan", "enable_tidscan", "enable_sort",
        "enable_incremental_sort", "jit",
    )
)  # fmt: skip
SEQUENTIAL_SCANS_ONLY: Final = "; ".join(
    f"set local {name} = off"
    for name in ("enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan", "enable_tidscan", "jit")
)


class KeySearch(Enum):
    """How the search for a row's own key is written, so that PostgreSQL searches this index and no other one."""

    EQUAL = "equal"
    ORDERED = "ordered"
    """A comparison of the key columns as a row, in the order of the index. PostgreSQL can use no other index for it."""


@dataclass(frozen=True)
class KeyCondition:
    """A condition on keys of an index. ``key``: the only key that fulfils the condition, if there is only one."""

    sql: sql.Composable
    key: Key | None = None


ALL_KEYS: Final = KeyCondition(_TRUE)


def choose_key_search(connection: Connection, index: BtreeIndex) -> KeySearch | None:
    """Return the form for which PostgreSQL reads ``index`` by plain index scans only; None if there is none.

    The transaction must have the settings :data:`PLAIN_INDEX_SCANS_ONLY`.
    """
    for form in KeySearch:
        if reads_only(connection, build_entries_query(index, form, [ALL_KEYS]), "Index Scan", index.name):
            return form
    return None


def reads_only(connection: Connection, query: sql.Composed, node_type: str, index: str | None = None) -> bool:
    """Return whether PostgreSQL's plan of ``query`` reads tables only by nodes of ``node_type``, and only ``index``."""
    row = connection.execute(sql.SQL("explain (format json) ") + query).fetchone()
    assert row is not None
    scans = [node for node in _iterate_nodes(row[0][0]["Plan"]) if "Relation Name" in node or "Index Name" in node]
    return bool(scans) and all(node["Node Type"] == node_type and node.get("Index Name") == index for node in scans)


def build_entries_query(
    index: BtreeIndex, search: KeySearch, ranges: Sequence[KeyCondition], columns: Sequence[str] = ()
) -> sql.Composed:
    """Return the query of the rows that ``index`` returns in ``ranges``, in the order of the index.

    Columns: row_id (ctid), k0, k1, … (key), c0, c1, … (``columns``), is_own (whether the row belongs in the index, and
    a search of the index for the row's key returns the row).

    :param ranges: conditions of the ranges, which are read one after the other. If a range has only one key, its scan
        is also the search for this key. Searching again for each row would take a time that grows with the square of
        the number of entries.
    """
    parts = [_build_range_query(index, condition, columns) for condition in ranges]
    entries = sql.SQL(" union all ").join(sql.SQL("select * from ({}) as part").format(part) for part in parts)
    return sql.SQL(
        "select entry.*, satisfies and coalesce(is_same, ({own}) > 0) as is_own from ({entries}) as entry"
    ).format(own=_build_own_entry(index, search), entries=entries)


def build_heap_query(index: BtreeIndex, columns: Sequence[str] = ()) -> sql.Composed:
    """Return the query of all rows that ``index`` should contain: columns of ``build_entries_query`` except is_own."""
    return sql.SQL("select {columns} from {table} where {condition}").format(
        columns=_columns(index, columns), table=sql.Identifier(index.table), condition=index.condition
    )


def build_next_keys_query(index: BtreeIndex, first: Key | None, offset: int) -> sql.Composed:
    """Return the query of the next keys, at least ``offset`` entries after ``first``, in the order of the index.

    The keys are k0, k1, …, without NULL. Each is after ``first``, also if ``first`` has more entries than ``offset``.
    """
    keys, names = _key_sql(index), _key_names(index)
    # OFFSET makes PostgreSQL evaluate the outer condition on the rows: a wrong entry may return any key.
    return sql.SQL(
        "select {names} from (select {columns} from {table} where {predicate} and {condition}{order} offset {offset})"
        " as entry where {is_later} limit {limit}"
    ).format(
        names=sql.SQL(", ").join(names),
        columns=_columns(index, ()),
        table=sql.Identifier(index.table),
        predicate=index.condition,
        condition=_compare_known(index, keys, ">=", first),
        order=_order(index),
        offset=sql.Literal(offset),
        is_later=_compare_known(index, names, ">", first),
        limit=sql.Literal(_CANDIDATES),
    )


def build_range_conditions(index: BtreeIndex, first: Key | None, end: Key | None) -> list[KeyCondition]:
    """Return conditions that together contain all keys from ``first`` on and before ``end``, each of them once.

    A comparison of keys is neither true nor false where it meets a NULL. In the index, a key with a NULL comes last
    among the keys with the same preceding columns. So each nullable column needs a condition of its own.

    :param first: first key, without NULL; None for the start of the index.
    :param end: first key after the range, without NULL; None for the end of the index.
    """
    keys = _key_sql(index)
    after = KeyCondition(sql.SQL(" and ").join([_compare(index, keys, ">", first), _compare(index, keys, "<", end)]))
    if first is None:
        return [after]
    conditions = [KeyCondition(sql.SQL(" and ").join(_between(keys, _literals(index, first))), first), after]
    for place, is_nullable in enumerate(index.nullable):
        prefix = first[:place]
        if is_nullable and (end is None or end[:place] != prefix):
            same = _between(keys[:place], _literals(index, prefix))
            is_null = sql.SQL(" and ").join([*same, sql.SQL("{} is null").format(keys[place])])
            conditions.append(KeyCondition(is_null, (*prefix, None) if place == len(keys) - 1 else None))
    return conditions


def _build_range_query(index: BtreeIndex, condition: KeyCondition, columns: Sequence[str]) -> sql.Composed:
    is_same: sql.Composable = sql.SQL("null::boolean")
    if condition.key is not None:
        key = _row(_literals(index, condition.key))
        is_same = sql.SQL("{} is not distinct from {}").format(_row(_key_sql(index)), key)
    return sql.SQL(
        "select {columns}, coalesce({predicate}, false) as satisfies, {is_same} as is_same from {table}"
        " where {predicate} and {condition}{order}"
    ).format(
        columns=_columns(index, columns),
        predicate=index.condition,
        table=sql.Identifier(index.table),
        is_same=is_same,
        condition=condition.sql,
        order=_order(index),
    )


def _build_own_entry(index: BtreeIndex, search: KeySearch) -> sql.Composed:
    """Return the SQL of the number of entries that have the key of ``entry``'s row and point to this row."""
    nullable = [place for place, is_nullable in enumerate(index.nullable) if is_nullable]
    cases: list[sql.Composable] = []
    for nulls in product((True, False), repeat=len(nullable)):
        null_places = {place for place, is_null in zip(nullable, nulls, strict=True) if is_null}
        lookup = sql.SQL(
            "(select count(*) from (select ctid as row_id from {table} where {predicate} and {same}{order}) as own"
            " where own.row_id = entry.row_id)"
        ).format(
            table=sql.Identifier(index.table),
            predicate=index.condition,
            same=_same_key(index, search, null_places),
            order=_order(index) if search is KeySearch.ORDERED else sql.SQL(""),
        )
        if not null_places:
            return sql.SQL("case {} else {} end").format(sql.SQL(" ").join(cases), lookup) if cases else lookup
        are_null = sql.SQL(" and ").join(
            sql.SQL("entry.{} is {}null").format(sql.Identifier(f"k{place}"), sql.SQL("" if is_null else "not "))
            for place, is_null in zip(nullable, nulls, strict=True)
        )
        cases.append(sql.SQL("when {} then {}").format(are_null, lookup))
    raise AssertionError("the last case has no NULL")


def _same_key(index: BtreeIndex, search: KeySearch, null_places: set[int]) -> sql.Composable:
    keys, values = _key_sql(index), [sql.Identifier("entry", f"k{place}") for place in range(len(index.keys))]
    # Only columns before the first NULL can be compared as a row.
    compared = min(null_places, default=len(keys)) if search is KeySearch.ORDERED else 0
    conditions = _between(keys[:compared], values[:compared])
    conditions += [
        sql.SQL("{} is null").format(keys[place])
        if place in null_places
        else sql.SQL("{} = {}").format(keys[place], values[place])
        for place in range(compared, len(keys))
    ]
    return sql.SQL(" and ").join(conditions)


def _between(keys: Sequence[sql.Composable], values: Sequence[sql.Composable]) -> list[sql.Composable]:
    """Return conditions that the columns have these values. With equalities, PostgreSQL would drop the ORDER BY."""
    return [sql.SQL(f"{{}} {sign} {{}}").format(_row(keys), _row(values)) for sign in (">=", "<=") if keys]


def _compare(index: BtreeIndex, keys: Sequence[sql.Composable], sign: str, bound: Key | None) -> sql.Composable:
    """Return the SQL of a comparison of ``keys`` with ``bound``; ``true`` if there is no bound."""
    if bound is None:
        return _TRUE
    return sql.SQL("{} {} {}").format(_row(keys), sql.SQL(sign), _row(_literals(index, bound)))


def _compare_known(index: BtreeIndex, keys: Sequence[sql.Composable], sign: str, bound: Key | None) -> sql.Composable:
    """Return the SQL of a comparison of ``keys`` with ``bound``. It is false for keys with NULL."""
    known = [
        sql.SQL("{} is not null").format(key)
        for key, is_nullable in zip(keys, index.nullable, strict=True)
        if is_nullable
    ]
    return sql.SQL(" and ").join([_compare(index, keys, sign, bound), *known])


def _order(index: BtreeIndex) -> sql.Composed:
    return sql.SQL(" order by {}").format(sql.SQL(", ").join(_key_sql(index)))


def _columns(index: BtreeIndex, columns: Sequence[str]) -> sql.Composed:
    named = [(key, f"k{place}") for place, key in enumerate(_key_sql(index))]
    named += [(sql.Identifier(name), f"c{place}") for place, name in enumerate(columns)]
    return sql.SQL(", ").join(
        [
            sql.SQL("ctid as row_id"),
            *(sql.SQL("{} as {}").format(source, sql.Identifier(name)) for source, name in named),
        ]
    )


def _key_sql(index: BtreeIndex) -> list[sql.Composable]:
    return [sql.SQL(key) for key in index.keys]


def _key_names(index: BtreeIndex) -> list[sql.Composable]:
    return [sql.Identifier(f"k{place}") for place in range(len(index.keys))]


def _literals(index: BtreeIndex, key: Key) -> list[sql.Composable]:
    return [
        sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(kind))
        for value, kind in zip(key, index.types, strict=False)
    ]


def _row(columns: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL("({})").format(sql.SQL(", ").join(columns))


def _iterate_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from _iterate_nodes(inner)
