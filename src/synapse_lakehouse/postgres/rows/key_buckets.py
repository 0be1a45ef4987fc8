"""Stretches of a table's keys: texts that begin alike, numbers of one block.

They tell where two copies of a table differ at little cost to the source, which hashes nothing for it. Ids of events
and rooms begin at random, and streams are pruned from one end, so that few stretches hold what differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.postgres.connection import Connection

_BEGINNINGS: Final = (3, 8, 24)
_BLOCKS: Final = (1_000_000, 1_000)


@dataclass(frozen=True)
class BucketWidth:
    """How finely a column is told apart: by the first ``size`` characters of a text, or in blocks of ``size`` numbers,
    of which the one around zero is twice as long."""

    column: str
    is_text: bool
    size: int

    def postgres_sql(self) -> sql.Composed:
        """PostgreSQL's SQL of the stretch of a row, a text."""
        of_row = "left({column}, {size})" if self.is_text else "({column} / {size})::text"
        return sql.SQL(of_row).format(column=sql.Identifier(self.column), size=sql.Literal(self.size))

    def spark_sql(self) -> str:
        """Spark's SQL for the same."""
        return f"left(`{self.column}`, {self.size})" if self.is_text else f"string(`{self.column}` div {self.size})"


@dataclass(frozen=True)
class KeyBuckets:
    """Some stretches of a table, by name."""

    grain: BucketWidth
    names: Sequence[str]


def list_bucket_widths(table: Table) -> list[BucketWidth]:
    """The grains by which keys of ``table`` are told apart, from coarse to fine."""
    types = {column.name: column.data_type for column in table.columns}
    column = next(name for name in table.primary_key if name not in table.nullable_key)
    is_text = types[column] == "string"
    return [BucketWidth(column, is_text, size) for size in (_BEGINNINGS if is_text else _BLOCKS)]


def count_rows_per_bucket(
    connection: Connection, table: Table, grain: BucketWidth, within: KeyBuckets | None = None
) -> dict[str, int]:
    """Rows in each stretch of ``table`` that has any, all of them or those ``within`` coarser ones."""
    counting = sql.SQL("select {stretch}, count(*) from {table} where {within} group by 1").format(
        stretch=grain.postgres_sql(),
        table=sql.Identifier(table.name),
        within=_is_one_of(within) if within else sql.SQL("true"),
    )
    return dict(connection.execute(counting).fetchall())


def read_keys(connection: Connection, table: Table, stretches: KeyBuckets) -> list[tuple[Any, ...]]:
    """Keys of the rows of ``table`` in ``stretches``, their columns in the catalogue's order."""
    key = sql.SQL(", ").join(map(sql.Identifier, table.primary_key))
    reading = sql.SQL("select {key} from {table} where {within}").format(
        key=key, table=sql.Identifier(table.name), within=_is_one_of(stretches)
    )
    return connection.execute(reading).fetchall()


def _is_one_of(stretches: KeyBuckets) -> sql.Composed:
    return sql.SQL("{stretch} = any({names})").format(
        stretch=stretches.grain.postgres_sql(), names=sql.Literal(list(stretches.names))
    )
