"""Group a table's keys into buckets: texts with a common prefix, or blocks of numbers.

Row counts per bucket locate the differences between two copies of a table without hashes, at little cost to the source.
IDs of events and rooms have random prefixes, and streams are pruned from one end, so few buckets differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.postgres.connection import Connection

_PREFIX_LENGTHS: Final = (3, 8, 24)
_BLOCK_SIZES: Final = (1_000_000, 1_000)


@dataclass(frozen=True)
class BucketWidth:
    """Bucket width of a key column: the first ``size`` characters of a text, or blocks of ``size`` numbers.

    The block around zero is twice as long, because division truncates towards zero.
    """

    column: str
    is_text: bool
    size: int

    def postgres_sql(self) -> sql.Composed:
        """Return PostgreSQL's SQL for the bucket of a row. Its value is a text."""
        bucket = "left({column}, {size})" if self.is_text else "({column} / {size})::text"
        return sql.SQL(bucket).format(column=sql.Identifier(self.column), size=sql.Literal(self.size))

    def spark_sql(self) -> str:
        """Return Spark's SQL for the same bucket."""
        return f"left(`{self.column}`, {self.size})" if self.is_text else f"string(`{self.column}` div {self.size})"


@dataclass(frozen=True)
class KeyBuckets:
    """Buckets of a table, by name."""

    width: BucketWidth
    names: Sequence[str]


def list_bucket_widths(table: Table) -> list[BucketWidth]:
    """Return the bucket widths for the keys of ``table``, the widest first."""
    types = {column.name: column.data_type for column in table.columns}
    column = next(name for name in table.primary_key if name not in table.nullable_key)
    is_text = types[column] == "string"
    return [BucketWidth(column, is_text, size) for size in (_PREFIX_LENGTHS if is_text else _BLOCK_SIZES)]


def count_rows_per_bucket(
    connection: Connection, table: Table, width: BucketWidth, within: KeyBuckets | None = None
) -> dict[str, int]:
    """Return the number of rows per bucket of ``table``. With ``within``, only rows in these wider buckets count."""
    statement = sql.SQL("select {bucket}, count(*) from {table} where {within} group by 1").format(
        bucket=width.postgres_sql(),
        table=sql.Identifier(table.name),
        within=_is_one_of(within) if within else sql.SQL("true"),
    )
    return dict(connection.execute(statement).fetchall())


def read_keys(connection: Connection, table: Table, buckets: KeyBuckets) -> list[tuple[Any, ...]]:
    """Return the keys of the rows of ``table`` in ``buckets``. The columns are in the catalogue's order."""
    key = sql.SQL(", ").join(map(sql.Identifier, table.primary_key))
    statement = sql.SQL("select {key} from {table} where {within}").format(
        key=key, table=sql.Identifier(table.name), within=_is_one_of(buckets)
    )
    return connection.execute(statement).fetchall()


def _is_one_of(buckets: KeyBuckets) -> sql.Composed:
    return sql.SQL("{bucket} = any({names})").format(
        bucket=buckets.width.postgres_sql(), names=sql.Literal(list(buckets.names))
    )
