"""Do the source and the lake hold the same rows? Both count and hash ranges of keys, in SQL that gives the same text.

A row's text is that of its columns as bronze holds them, each preceded by its length in bytes, so that no two rows have
the same; NULL is N. A range is summed up by its rows and two sums of 28 bits each of their MD5: order does not matter,
a row that occurs twice counts twice, and both sides add up exactly.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Column, Table
from synapse_lakehouse.postgres.rows.json_check import OLDEST
from synapse_lakehouse.postgres.rows.key_ranges import RANGE_DIGITS, key_range
from synapse_lakehouse.postgres.rows.select_sql import expression, select

_HASH_DIGITS: Final = 7
"""Hexadecimal digits of MD5 in each of the two sums: sums of 2^35 rows still fit 64 bits."""

RANGES: Final = 16**RANGE_DIGITS


@dataclass(frozen=True)
class Digest:
    """What a range of keys comes to on one side."""

    rows: int
    first: int
    second: int


NOTHING: Final = Digest(0, 0, 0)

Digests = Mapping[str, Digest]
"""Digests by the names of the ranges that have rows."""


@dataclass(frozen=True)
class Slice:
    """Part ``number`` (from 0) of ``of`` equal parts of a table's ranges; ``of`` divides their number."""

    number: int
    of: int

    def __contains__(self, name: object) -> bool:
        return int(str(name), 16) * self.of // RANGES == self.number

    @property
    def first(self) -> str:
        """The first of its ranges."""
        return f"{self.number * RANGES // self.of:0{RANGE_DIGITS}x}"

    @property
    def last(self) -> str:
        """The last of its ranges."""
        return f"{(self.number + 1) * RANGES // self.of - 1:0{RANGE_DIGITS}x}"


def slices(rows: int, most_rows: int, at_least: int = 1) -> tuple[Slice, ...]:
    """``at_least`` so many slices (a power of 2), and so many that none has more than ``most_rows`` of ``rows``."""
    of = at_least
    while rows > most_rows * of and of < RANGES:
        of *= 2
    return tuple(Slice(number, of) for number in range(of))


def in_source(table: Table, part: Slice, server_version: int = OLDEST) -> sql.Composed:
    """Statement that digests a slice of ``table`` in PostgreSQL: columns range, rows, first sum, second sum.

    :param server_version: as in :func:`~synapse_lakehouse.postgres.rows.select_sql.select`.
    """
    halves = (
        sql.SQL("sum(('x' || substr(hash, {start}, {digits}))::bit({bits})::int)").format(
            start=sql.Literal(start), digits=sql.Literal(_HASH_DIGITS), bits=sql.SQL(str(4 * _HASH_DIGITS))
        )
        for start in (1, 1 + _HASH_DIGITS)
    )
    within: sql.Composable = sql.SQL("")
    if part.of > 1:
        within = sql.SQL(" where {} between {} and {}").format(
            key_range(table), sql.Literal(part.first), sql.Literal(part.last)
        )
    return sql.SQL(
        "select range, count(*), {halves} from (select {range} as range, md5({row}) as hash from"
        " (select {columns} from {table}{within}) as projected) as hashed group by range"
    ).format(
        halves=sql.SQL(", ").join(halves),
        range=key_range(table),
        row=sql.SQL(" || ").join(map(_text_in_source, table.columns)),
        columns=sql.SQL(", ").join(expression(column, server_version) for column in table.columns),
        table=sql.Identifier(table.name),
        within=within,
    )


def rows_of(table: Table, ranges: Collection[str]) -> sql.Composed:
    """Statement that reads the rows of ``table`` in ``ranges`` as bronze holds them."""
    names = sql.SQL(", ").join(map(sql.Literal, sorted(ranges)))
    return select(table) + sql.SQL(" where {} in ({})").format(key_range(table), names)


def hash_in_lake(table: Table) -> str:
    """Spark's SQL for the MD5 of a row's text."""
    return f"md5(concat({', '.join(map(_text_in_lake, table.columns))}))"


def sum_in_lake(number: int) -> str:
    """Spark's SQL for the ``number``-th sum (0 or 1) over a column ``hash``."""
    return f"sum(cast(conv(substr(hash, {1 + number * _HASH_DIGITS}, {_HASH_DIGITS}), 16, 10) as int))"


def differing(source: Digests, lake: Digests) -> list[str]:
    """Names of the ranges whose digests differ, in order."""
    return sorted(one for one in source.keys() | lake.keys() if source.get(one, NOTHING) != lake.get(one, NOTHING))


def _text_in_source(column: Column) -> sql.Composed:
    text = sql.SQL("{}::text").format(sql.Identifier(column.name))
    if column.data_type == "double":
        # Bits: the two sides would write the same number differently.
        text = sql.SQL("('x' || encode(float8send({}), 'hex'))::bit(64)::bigint::text").format(
            sql.Identifier(column.name)
        )
    return sql.SQL("coalesce(octet_length({text}) || ':' || {text}, 'N')").format(text=text)


def _text_in_lake(column: Column) -> str:
    text = f"cast(`{column.name}` as string)"
    if column.data_type == "double":
        text = f"if(`{column.name}` is null, null, reflect('java.lang.Double', 'doubleToLongBits', `{column.name}`))"
    return f"coalesce(concat(octet_length({text}), ':', {text}), 'N')"
