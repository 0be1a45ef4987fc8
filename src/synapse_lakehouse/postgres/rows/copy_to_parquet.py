"""Read chunks of tables from the exported PostgreSQL snapshot and write them as Parquet, in Spark's Python workers."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
from adbc_driver_manager import AdbcConnection
from pyiceberg.io import FileIO, load_file_io

from synapse_lakehouse import parquet_writer
from synapse_lakehouse.postgres.rows.content_hash import combine_hashes, hash_rows
from synapse_lakehouse.postgres.rows.snapshot_reader import open_snapshot, read_batches


@dataclass(frozen=True)
class ReadChunk:
    """A part of a table that a worker reads. It contains the password, which ``repr`` omits.

    ``schema`` has Iceberg's field IDs in its fields' metadata. ``unique_columns`` are written without a dictionary.
    """

    conninfo: str
    snapshot: str
    statement: str
    schema: pa.Schema
    unique_columns: tuple[str, ...]
    folder: str
    io_properties: dict[str, str]

    def __repr__(self) -> str:
        return f"ReadChunk({self.folder})"


@dataclass(frozen=True)
class WrittenPart:
    """A new Parquet file that no table refers to yet; ``path`` is None if there were no rows.

    ``hash_received``: content hash of the rows that the source sent. ``hash_stored``: content hash of the rows in the
    file. ``seconds``: duration of reading and writing.
    """

    path: str | None
    rows: int
    bytes: int
    hash_received: int
    hash_stored: int
    seconds: float

    @property
    def paths(self) -> list[str]:
        """A list with the path of the file; empty if there is no file."""
        return [self.path] if self.path else []


def copy_chunks(chunks: Sequence[ReadChunk]) -> list[WrittenPart]:
    """Read all ``chunks`` of one PostgreSQL snapshot over one connection, and write each to a new file.

    :raises ReadError: when the source refuses the query or the connection is lost.
    :raises OSError: when the warehouse cannot be written.
    """
    if not chunks:
        return []
    with open_snapshot(chunks[0].conninfo, chunks[0].snapshot) as connection:
        return [_copy_chunk(chunk, connection) for chunk in chunks]


def _copy_chunk(chunk: ReadChunk, connection: AdbcConnection) -> WrittenPart:
    started = time.monotonic()
    with read_batches(connection, chunk.statement) as reader:
        written = _write_chunk(chunk, reader)
    return replace(written, seconds=time.monotonic() - started)


def _write_chunk(chunk: ReadChunk, reader: pa.RecordBatchReader) -> WrittenPart:
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
    return WrittenPart(file.path, file.rows, file.bytes, received, _hash_stored_rows(io, file.path), 0.0)


def _hash_stored_rows(io: FileIO, path: str) -> int:
    with io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        groups = (file.read_row_group(number, use_threads=False) for number in range(file.num_row_groups))
        return combine_hashes(hash_rows(group, group.column_names) for group in groups)
