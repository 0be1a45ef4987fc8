"""Read chunks of tables out of the exported snapshot and write them as Parquet: runs in Spark's Python workers."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import adbc_driver_postgresql
import pyarrow as pa
import pyarrow.parquet as pq
from adbc_driver_manager import AdbcConnection, AdbcDatabase, AdbcStatement, Error
from pyiceberg.io import FileIO, load_file_io

from synapse_lakehouse import parquet_writer
from synapse_lakehouse.postgres.connection import DISABLE_TRANSACTION_TIMEOUT
from synapse_lakehouse.postgres.errors import ReadError
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes, hash_rows

BATCH_BYTES = 2 << 20


@dataclass(frozen=True)
class ReadChunk:
    """What a worker needs to read a part of a table. Holds the password, so its repr is never logged.

    ``schema`` carries Iceberg's field ids in the metadata of its fields; ``unique_columns`` gain nothing from a
    dictionary.
    """

    conninfo: str
    snapshot: str
    statement: str
    schema: pa.Schema
    unique_columns: tuple[str, ...]
    folder: str
    io_properties: dict[str, str]

    def __repr__(self) -> str:
        return f"Chunk({self.folder})"


@dataclass(frozen=True)
class WrittenPart:
    """A Parquet file that no table refers to yet (None if there were no rows), its rows and bytes.

    Content hashes of the rows as the source sent them, and as they were read again from the file; seconds in all.
    """

    path: str | None
    rows: int
    bytes: int
    hash_received: int
    hash_stored: int
    seconds: float

    @property
    def paths(self) -> list[str]:
        """The file, if there is one."""
        return [self.path] if self.path else []


def copy_chunks(chunks: Sequence[ReadChunk]) -> list[WrittenPart]:
    """Read each of ``chunks``, all of one snapshot, once and over one connection, and write each to a new file.

    Without any, nothing is connected to.

    :raises ReadError: when the source refuses or goes away.
    :raises OSError: when the warehouse cannot be written.
    """
    if not chunks:
        return []
    try:
        with AdbcConnection(_database(chunks[0].conninfo)) as connection:
            connection.set_autocommit(False)
            _run(connection, "set transaction isolation level repeatable read read only")
            _run(connection, f"set transaction snapshot '{chunks[0].snapshot}'")
            _run(connection, DISABLE_TRANSACTION_TIMEOUT)
            return [_copy(chunk, connection) for chunk in chunks]
    except (Error, OSError) as error:
        # What breaks in the middle of a result comes as OSError, as does what breaks in the warehouse.
        if isinstance(error, OSError) and "libpq" not in str(error):
            raise
        raise ReadError(error) from None


@cache
def _database(conninfo: str) -> AdbcDatabase:
    """What ADBC asks of a database before it connects: all of its types, which takes longer than connecting."""
    database: AdbcDatabase = adbc_driver_postgresql.connect(conninfo)
    return database


def _run(connection: AdbcConnection, statement: str) -> None:
    with AdbcStatement(connection) as running:
        running.set_sql_query(statement)
        running.execute_update()


def _copy(chunk: ReadChunk, connection: AdbcConnection) -> WrittenPart:
    started = time.monotonic()
    with AdbcStatement(connection) as reading:
        reading.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        reading.set_sql_query(chunk.statement)
        stream, _ = reading.execute_query()
        with pa.RecordBatchReader._import_from_c(stream.address) as reader:
            written = _write(chunk, reader)
    return replace(written, seconds=time.monotonic() - started)


def _write(chunk: ReadChunk, reader: pa.RecordBatchReader) -> WrittenPart:
    received = 0

    def groups() -> Iterator[pa.Table]:
        nonlocal received
        for group in parquet_writer.group_batches(reader):
            received = combine_hashes([received, hash_rows(group, chunk.schema.names)])
            yield group

    io = load_file_io(chunk.io_properties, chunk.folder)
    file = parquet_writer.write_parquet(groups(), chunk.schema, io, chunk.folder, chunk.unique_columns)
    if file is None:
        return WrittenPart(None, 0, 0, 0, 0, 0.0)
    return WrittenPart(file.path, file.rows, file.bytes, received, _stored(io, file.path), 0.0)


def _stored(io: FileIO, path: str) -> int:
    with io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        groups = (file.read_row_group(number, use_threads=False) for number in range(file.num_row_groups))
        return combine_hashes(hash_rows(group, group.column_names) for group in groups)
