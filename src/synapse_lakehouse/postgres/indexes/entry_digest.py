"""Digests of index entries and of rows, in groups, so that equal groups need no further comparison."""

from collections.abc import Sequence
from typing import Final

from psycopg import sql

from synapse_lakehouse.postgres.rows.range_digest import DigestsByRange, hash_sums_postgres_sql, value_text_postgres_sql

GROUP_DIGITS: Final = 4
"""Hexadecimal digits of a row's hash that name its group: 65,536 groups, whatever the size of the table."""


def build_digest_query(
    rows: sql.Composed, hashed: Sequence[str], *, are_entries: bool, are_grouped: bool = False
) -> sql.Composed:
    """Return the query of the digests of ``rows``. Its columns: group, rows, first sum, second sum, wrong entries.

    :param hashed: columns that identify a row.
    :param are_entries: whether ``rows`` are entries of an index, which have the column is_own.
    :param are_grouped: whether the query returns a digest for each group of hashes. If not, it returns one digest.
    """
    return sql.SQL("select {group}, count(*), {sums}, {not_own} from ({rows}) as hashed{by}").format(
        group=_group_sql() if are_grouped else sql.SQL("''"),
        sums=hash_sums_postgres_sql(),
        not_own=sql.SQL("count(*) filter (where not is_own)" if are_entries else "0"),
        rows=add_hash(rows, hashed),
        by=sql.SQL(" group by 1" if are_grouped else ""),
    )


def add_hash(rows: sql.Composed, hashed: Sequence[str]) -> sql.Composed:
    """Return the query of ``rows`` with the column hash: the MD5 of the columns ``hashed``, as in Spark's SQL."""
    texts = (value_text_postgres_sql(sql.SQL("{}::text").format(sql.Identifier(name))) for name in hashed)
    return sql.SQL("select *, md5({}) as hash from ({}) as plain").format(sql.SQL(" || ").join(texts), rows)


def choose_groups(differing: Sequence[str], entries: DigestsByRange, rows: DigestsByRange, max_rows: int) -> list[str]:
    """Return the first of the ``differing`` groups: at most ``max_rows`` entries and rows, but at least one group."""
    chosen: list[str] = []
    for name in differing:
        max_rows -= sum(side[name].rows for side in (entries, rows) if name in side)
        if chosen and max_rows < 0:
            break
        chosen.append(name)
    return chosen


def is_in_groups(groups: Sequence[str]) -> sql.Composed:
    """Return the SQL condition that a hash is in one of ``groups``."""
    return sql.SQL("{} = any({})").format(_group_sql(), sql.Literal(list(groups)))


def _group_sql() -> sql.SQL:
    return sql.SQL(f"left(hash, {GROUP_DIGITS})")
