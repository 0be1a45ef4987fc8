"""Compute digests of key ranges, which show whether Synapse's database and the lake contain the same rows.

Both sides convert each row to the same text and hash the text with MD5. The text contains the row's bronze columns,
each with its length in bytes before it, so different rows have different texts. NULL is written as N. A digest consists
of the number of rows and of two sums, each over 28 bits of the MD5. Sums are exact, and do not depend on the order of
the rows. A row that occurs twice counts twice.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Column, Table
from synapse_lakehouse.postgres.rows.is_json_sql import OLDEST_SERVER_VERSION
from synapse_lakehouse.postgres.rows.key_ranges import RANGE_DIGITS, key_range_postgres_sql
from synapse_lakehouse.postgres.rows.select_sql import build_column_sql, build_select

HASH_DIGITS: Final = 7
"""Hexadecimal digits of the MD5 in each sum. Sums over 2^35 rows fit into 64 bits."""

RANGE_COUNT: Final = 16**RANGE_DIGITS


@dataclass(frozen=True)
class RowDigest:
    """Number of rows or entries, two sums of their hashes, and the number of entries that point to a wrong row."""

    rows: int
    first: int
    second: int
    not_own: int = 0


EMPTY_DIGEST: Final = RowDigest(0, 0, 0)

DigestsByRange = Mapping[str, RowDigest]
"""Digests by range name. Ranges without rows are absent."""


@dataclass(frozen=True)
class KeySlice:
    """One of ``of`` equal slices of a table's ranges. ``number`` counts from 0; ``of`` divides the number of ranges."""

    number: int
    of: int

    def __contains__(self, name: object) -> bool:
        return int(str(name), 16) * self.of // RANGE_COUNT == self.number

    @property
    def first(self) -> str:
        """The name of the first range."""
        return f"{self.number * RANGE_COUNT // self.of:0{RANGE_DIGITS}x}"

    @property
    def last(self) -> str:
        """The name of the last range."""
        return f"{(self.number + 1) * RANGE_COUNT // self.of - 1:0{RANGE_DIGITS}x}"


def slice_key_ranges(rows: int, max_rows: int, minimum: int = 1) -> tuple[KeySlice, ...]:
    """Return slices of at most ``max_rows`` rows. Their number is a power of 2, at least ``minimum``."""
    of = minimum
    while rows > max_rows * of and of < RANGE_COUNT:
        of *= 2
    return tuple(KeySlice(number, of) for number in range(of))


def build_digest_query(table: Table, part: KeySlice, server_version: int = OLDEST_SERVER_VERSION) -> sql.Composed:
    """Return the PostgreSQL statement for the digests of a slice: columns range, rows, first sum, second sum.

    :param server_version: as in :func:`~synapse_lakehouse.postgres.rows.select_sql.build_select`.
    """
    within: sql.Composable = sql.SQL("")
    if part.of > 1:
        within = sql.SQL(" where {} between {} and {}").format(
            key_range_postgres_sql(table), sql.Literal(part.first), sql.Literal(part.last)
        )
    return sql.SQL(
        "select range, count(*), {sums} from (select {range} as range, md5({row}) as hash from"
        " (select {columns} from {table}{within}) as projected) as hashed group by range"
    ).format(
        sums=hash_sums_postgres_sql(),
        range=key_range_postgres_sql(table),
        row=sql.SQL(" || ").join(map(_row_text_postgres_sql, table.columns)),
        columns=sql.SQL(", ").join(build_column_sql(column, server_version) for column in table.columns),
        table=sql.Identifier(table.name),
        within=within,
    )


def build_rows_query(table: Table, ranges: Collection[str]) -> sql.Composed:
    """Return the PostgreSQL statement that reads the rows of ``table`` in ``ranges``, with bronze's columns."""
    names = sql.SQL(", ").join(map(sql.Literal, sorted(ranges)))
    return build_select(table) + sql.SQL(" where {} in ({})").format(key_range_postgres_sql(table), names)


def hash_sums_postgres_sql() -> sql.Composed:
    """Return PostgreSQL's SQL for both sums over a column ``hash``; 0 without rows."""
    sums = (
        sql.SQL("coalesce(sum(('x' || substr(hash, {start}, {digits}))::bit({bits})::int), 0)").format(
            start=sql.Literal(start), digits=sql.Literal(HASH_DIGITS), bits=sql.SQL(str(4 * HASH_DIGITS))
        )
        for start in (1, 1 + HASH_DIGITS)
    )
    return sql.SQL(", ").join(sums)


def value_text_postgres_sql(text: sql.Composable) -> sql.Composed:
    """Return PostgreSQL's SQL for a value in a row's text; ``text`` is the SQL for the value as text."""
    return sql.SQL("coalesce(octet_length({text}) || ':' || {text}, 'N')").format(text=text)


def row_hash_spark_sql(table: Table) -> str:
    """Return Spark's SQL for the MD5 of a row's text."""
    return f"md5(concat({', '.join(map(_row_text_spark_sql, table.columns))}))"


def hash_sum_spark_sql(number: int) -> str:
    """Return Spark's SQL for the ``number``-th sum (0 or 1) over a column ``hash``."""
    return f"sum(cast(conv(substr(hash, {1 + number * HASH_DIGITS}, {HASH_DIGITS}), 16, 10) as int))"


def find_differing_ranges(source: DigestsByRange, lake: DigestsByRange) -> list[str]:
    """Return the names of the ranges whose digests differ, in order."""
    return sorted(
        name for name in source.keys() | lake.keys() if source.get(name, EMPTY_DIGEST) != lake.get(name, EMPTY_DIGEST)
    )


def _row_text_postgres_sql(column: Column) -> sql.Composed:
    text = sql.SQL("{}::text").format(sql.Identifier(column.name))
    if column.data_type == "double":
        # PostgreSQL and Spark format the same number differently, so its bits are compared.
        text = sql.SQL("('x' || encode(float8send({}), 'hex'))::bit(64)::bigint::text").format(
            sql.Identifier(column.name)
        )
    return value_text_postgres_sql(text)


def _row_text_spark_sql(column: Column) -> str:
    text = f"cast(`{column.name}` as string)"
    if column.data_type == "double":
        text = f"if(`{column.name}` is null, null, reflect('java.lang.Double', 'doubleToLongBits', `{column.name}`))"
    return f"coalesce(concat(octet_length({text}), ':', {text}), 'N')"
