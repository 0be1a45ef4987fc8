"""Group a table's keys into buckets: texts with a common prefix, or blocks of numbers.

Row counts per bucket locate the differences between two copies of a table without hashes, at little cost to the source.
Streams are pruned from one end, so few blocks of numbers differ. IDs of events and rooms have random prefixes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.postgres.connection import Connection

_PREFIX_LENGTH: Final = 3
"""IDs begin with a sigil, so a column of IDs has 64² buckets."""
_BLOCK_SIZE: Final = 100_000


@dataclass(frozen=True)
class BucketWidth:
    """Bucket width of a key column: the first ``size`` bytes of a text, or blocks of ``size`` numbers.

    In a database with the encoding SQL_ASCII, characters are bytes, and a part of a UTF-8 text is not always UTF-8.
    Therefore the bytes are in hexadecimal digits. The block around zero is twice as long, because division truncates
    towards zero.
    """

    column: str
    is_text: bool
    size: int

    def postgres_sql(self) -> sql.Composed:
        """Return PostgreSQL's SQL for the bucket of a row. Its value is a text."""
        # convert_to with SQL_ASCII returns the bytes of the text as they are stored.
        bytes_sql = "encode(substr(convert_to({column}, 'SQL_ASCII'), 1, {size}), 'hex')"
        bucket = bytes_sql if self.is_text else "({column} / {size})::text"
        return sql.SQL(bucket).format(column=sql.Identifier(self.column), size=sql.Literal(self.size))

    def spark_sql(self) -> str:
        """Return Spark's SQL for the same bucket."""
        bytes_sql = f"lower(hex(substring(binary(`{self.column}`), 1, {self.size})))"
        return bytes_sql if self.is_text else f"string(`{self.column}` div {self.size})"


def get_bucket_width(table: Table) -> BucketWidth:
    """Return the bucket width for the keys of ``table``."""
    types = {column.name: column.data_type for column in table.columns}
    column = next(name for name in table.primary_key if name not in table.nullable_key)
    is_text = types[column] == "string"
    return BucketWidth(column, is_text, _PREFIX_LENGTH if is_text else _BLOCK_SIZE)


def count_rows_per_bucket(connection: Connection, table: Table, width: BucketWidth) -> dict[str, int]:
    """Return the number of rows per bucket of ``table``."""
    statement = sql.SQL("select {bucket}, count(*) from {table} group by 1").format(
        bucket=width.postgres_sql(), table=sql.Identifier(table.name)
    )
    return dict(connection.execute(statement).fetchall())


def build_keys_query(table: Table, width: BucketWidth, buckets: Sequence[str]) -> sql.Composed:
    """Return the statement that reads the keys of the rows in ``buckets``. Columns are in the order of the key."""
    return sql.SQL("select {key} from {table} where {bucket} = any({names})").format(
        key=sql.SQL(", ").join(map(sql.Identifier, table.primary_key)),
        table=sql.Identifier(table.name),
        bucket=width.postgres_sql(),
        names=sql.Literal(list(buckets)),
    )
