"""Read rows of an exported PostgreSQL snapshot as Arrow batches, in Spark's Python workers."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import adbc_driver_postgresql
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, AdbcDatabase, AdbcStatement, Error

from synapse_lakehouse.postgres.connection import DISABLE_TRANSACTION_TIMEOUT
from synapse_lakehouse.postgres.errors import convert_read_error

BATCH_BYTES: Final = 2 << 20


@contextmanager
def open_snapshot(conninfo: str, snapshot: str) -> Iterator[AdbcConnection]:
    """Open a connection that reads the exported ``snapshot``.

    :raises ReadError: when the source refuses a query or the connection is lost.
    """
    try:
        with AdbcConnection(_connected_database(conninfo)) as connection:
            connection.set_autocommit(False)
            _execute(connection, "set transaction isolation level repeatable read read only")
            _execute(connection, f"set transaction snapshot '{snapshot}'")
            _execute(connection, DISABLE_TRANSACTION_TIMEOUT)
            yield connection
    except (Error, OSError) as error:
        # ADBC (in the middle of a result) and the warehouse both raise OSError.
        if isinstance(error, OSError) and "libpq" not in str(error):
            raise
        raise convert_read_error(error) from None


@contextmanager
def read_batches(connection: AdbcConnection, statement: str) -> Iterator[pa.RecordBatchReader]:
    """Return a reader of the rows of ``statement``."""
    with AdbcStatement(connection) as reading:
        reading.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        reading.set_sql_query(statement)
        stream, _ = reading.execute_query()
        with pa.RecordBatchReader._import_from_c(stream.address) as reader:
            yield reader


def iterate_rows(
    _: Iterable[pa.RecordBatch], *, conninfo: str, snapshot: str, statement: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``statement``: a function for ``mapInArrow`` on a frame with one partition."""
    with open_snapshot(conninfo, snapshot) as connection, read_batches(connection, statement) as reader:
        for batch in reader:
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


@cache
def _connected_database(conninfo: str) -> AdbcDatabase:
    """Return ADBC's database object from a cache, because creating it takes longer than a connection."""
    database: AdbcDatabase = adbc_driver_postgresql.connect(conninfo)
    return database


def _execute(connection: AdbcConnection, statement: str) -> None:
    with AdbcStatement(connection) as running:
        running.set_sql_query(statement)
        running.execute_update()
