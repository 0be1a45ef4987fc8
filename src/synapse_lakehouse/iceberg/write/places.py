"""Where rows with given keys are in a table's files, found without Spark: for few keys, a fraction of a job's cost."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table import FileScanTask, Table

Places = Mapping[str, Sequence[pa.Array]]
"""Numbers of rows in data files, by the files' paths; no file has none."""

COLUMNS: Final = ("file_path", "pos")
"""Names of the columns of Iceberg's position delete files."""

_AT_ONCE: Final = 2

_ROWS_READ: Final = 200_000


def count(places: Places) -> int:
    """How many rows are in these places."""
    return sum(len(rows) for of_file in places.values() for rows in of_file)


def places(table: Table, snapshot_id: int, key: Sequence[str], keys: pa.Table) -> Places:
    """Places of the rows of a snapshot whose ``key`` is among ``keys`` (NULLs equal NULLs).

    Rows that position delete files took away are not among them.
    """
    tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
    deleted = deleted_positions(table.io, {file.file_path for task in tasks for file in task.delete_files})

    def in_file(task: FileScanTask) -> pa.ChunkedArray:
        path = task.file.file_path
        found = pa.chunked_array(_positions(table.io, path, key, keys), pa.int64())
        if path in deleted:
            found = found.filter(pc.invert(pc.is_in(found, value_set=pa.concat_arrays(deleted[path]))))
        return found

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = zip(tasks, pool.map(in_file, tasks), strict=True)
        return {task.file.file_path: rows.chunks for task, rows in found if len(rows)}


def rows_at(io: FileIO, places: Places, columns: Sequence[str]) -> pa.Table:
    """Columns of the rows in some places, of which there has to be one."""
    found = []
    for path, rows in places.items():
        with io.new_input(path).open() as stream:
            found.append(pq.read_table(stream, columns=list(columns)).take(pa.chunked_array(rows)))
    return pa.concat_tables(found)


def deleted_positions(io: FileIO, paths: set[str]) -> dict[str, list[pa.Array]]:
    """Places of the rows that the position deletes in ``paths`` take away."""
    positions: dict[str, list[pa.Array]] = defaultdict(list)
    file_path, pos = COLUMNS
    for path in paths:
        with io.new_input(path).open() as stream:
            deletes = pq.read_table(stream, columns=list(COLUMNS), read_dictionary=[file_path])
        for file in pc.unique(deletes[file_path]):
            positions[file.as_py()] += deletes.filter(pc.equal(deletes[file_path], file))[pos].chunks
    return positions


def _positions(io: FileIO, path: str, key: Sequence[str], keys: pa.Table) -> Iterator[pa.Array]:
    first = 0
    with io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        for numbers in _row_groups(file.metadata):
            rows = file.read_row_groups(numbers, columns=list(key), use_threads=False)
            yield pc.add(_matching(rows, key, keys), first)
            first += rows.num_rows


def _row_groups(metadata: pq.FileMetaData) -> Iterator[list[int]]:
    """Numbers of row groups that are read together: small ones are many, and the keys are prepared for each read."""
    numbers, rows = list[int](), 0
    for number in range(metadata.num_row_groups):
        numbers.append(number)
        rows += metadata.row_group(number).num_rows
        if rows >= _ROWS_READ:
            yield numbers
            numbers, rows = [], 0
    if numbers:
        yield numbers


def _matching(group: pa.Table, key: Sequence[str], keys: pa.Table) -> pa.Array:
    if len(key) == 1:
        values = keys[key[0]].cast(group.schema.field(key[0]).type)
        return pc.indices_nonzero(pc.is_in(group[key[0]], value_set=values.combine_chunks())).cast(pa.int64())
    numbered = group.append_column("row number", pa.array(range(group.num_rows), pa.int64()))
    same = " and ".join(f'numbered."{name}" is not distinct from keys."{name}"' for name in key)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("numbered", numbered)
        connection.register("keys", keys)
        found = connection.sql(f'select "row number" from numbered semi join keys on {same}')  # noqa: S608
        return found.to_arrow_table()["row number"].combine_chunks()
