"""Find the rows that changed between two Iceberg snapshots, by comparing their files, without Spark."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation

_MAX_ROWS: Final = 2_000_000
"""Maximum number of changed rows. With more rows, a full rebuild of the dependent tables is faster."""


def find_changed_keys(
    table: Table, before: int, after: int, columns: Sequence[str], *, came: bool = True
) -> pa.Table | None:
    """Return ``columns`` of added, changed (old and new values) and deleted rows.

    Rows may repeat, and unchanged rows may be included. None if too many rows changed, or a snapshot in between
    expired.

    :param came: whether added files are read. If not, new rows and new values are missing.
    """
    schema = table.schema().as_arrow()
    keys = [pa.schema([schema.field(name) for name in columns]).empty_table()]
    steps = list(_steps(table, before, after))
    if not steps or steps[-1][0] != before:
        return None
    for first, last in steps:
        changed = _between(table, first, last, columns, came=came)
        if changed is None:
            return None
        keys += [rows.cast(keys[0].schema) for rows in changed]
    return pa.concat_tables(keys)


def _steps(table: Table, before: int, after: int) -> Iterator[tuple[int, int]]:
    """Pairs of snapshots that lead from ``before`` to ``after`` without compactions, the newest pair first."""
    last, snapshot = after, table.snapshot_by_id(after)
    while snapshot and snapshot.snapshot_id != before:
        parent = snapshot.parent_snapshot_id
        if snapshot.summary and snapshot.summary.operation is Operation.REPLACE and parent is not None:
            yield snapshot.snapshot_id, last
            last = parent
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    if snapshot:
        yield before, last


def _between(table: Table, before: int, after: int, columns: Sequence[str], *, came: bool) -> list[pa.Table] | None:
    old, new = _files(table, before), _files(table, after)
    tasks = [old[path] for path in old.keys() - new.keys()]
    if came:
        tasks += [new[path] for path in new.keys() - old.keys()]
    deletes = {path: _deletes(new[path]) ^ _deletes(old[path]) for path in old.keys() & new.keys()}
    positions = _read_deleted_positions(table.io, set().union(*deletes.values()))
    positions = {path: rows for path, rows in positions.items() if deletes.get(path)}
    if sum(task.file.record_count for task in tasks) + sum(map(_count, positions.values())) > _MAX_ROWS:
        return None
    return [
        *(_read(table.io, task.file.file_path, columns) for task in tasks),
        *(_read(table.io, path, columns).take(pa.chunked_array(rows)) for path, rows in positions.items()),
    ]


def _files(table: Table, snapshot: int) -> dict[str, FileScanTask]:
    return {task.file.file_path: task for task in table.scan(snapshot_id=snapshot).plan_files()}


def _deletes(task: FileScanTask) -> set[str]:
    return {file.file_path for file in task.delete_files}


def _count(arrays: Sequence[pa.Array]) -> int:
    return sum(map(len, arrays))


def _read(io: FileIO, path: str, columns: Sequence[str]) -> pa.Table:
    with io.new_input(path).open() as stream:
        return pq.read_table(stream, columns=list(columns))


def _read_deleted_positions(io: FileIO, paths: set[str]) -> dict[str, list[pa.Array]]:
    """Return the positions that the position delete files ``paths`` contain, by data file."""
    positions: dict[str, list[pa.Array]] = defaultdict(list)
    for path in paths:
        with io.new_input(path).open() as stream:
            deletes = pq.read_table(stream, columns=["file_path", "pos"], read_dictionary=["file_path"])
        for file in pc.unique(deletes["file_path"]):
            positions[file.as_py()] += deletes.filter(pc.equal(deletes["file_path"], file))["pos"].chunks
    return positions
