"""Write rows as a Parquet file that no table refers to yet, with the lake's row group size and compression."""

import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

ROW_GROUP_BYTES = 4 << 20
# Writing with level 1 is twice as fast as with level 3, and the files are about 2% larger.
COMPRESSION_LEVEL = 1


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file."""

    path: str
    rows: int
    bytes: int


def write_parquet(
    groups: Iterable[pa.Table], schema: pa.Schema, io: FileIO, folder: str, unique_columns: Collection[str] = ()
) -> ParquetFile | None:
    """Write each of ``groups`` as a row group of one new file in ``folder``; return the file.

    Return None if there is no group.

    :param schema: schema of all groups, with Iceberg's field IDs in the metadata of its fields.
    :param unique_columns: columns that are written without a dictionary.
    :raises OSError: when the warehouse cannot be written.
    """
    remaining = iter(groups)
    group = next(remaining, None)
    if group is None:
        return None
    path, rows = f"{folder}/{uuid.uuid4()}.parquet", 0
    with io.new_output(path).create() as stream:
        with pq.ParquetWriter(
            stream,
            schema,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=[
                field.name for field in schema if field.name not in unique_columns and not pa.types.is_int64(field.type)
            ],
        ) as writer:
            while group is not None:
                writer.write_table(group.cast(schema))
                rows += group.num_rows
                group = next(remaining, None)
        size = stream.tell()
    return ParquetFile(path, rows, size)


def group_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of ``batches`` in tables of about the size of a row group."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
        if sum(batch.nbytes for batch in pending) >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending = []
    if pending:
        yield pa.Table.from_batches(pending)
