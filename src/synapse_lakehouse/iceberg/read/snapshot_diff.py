"""What changed in a table between two of its snapshots, by which files they are made of; found without Spark."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation

from synapse_lakehouse.iceberg.write.places import deleted_positions

_MOST_ROWS: Final = 2_000_000
"""More than these are not looked at: what is made of them is made anew sooner as a whole."""

_MOST_BYTES: Final = 16 * 2**20
"""Newer files are read here up to this size, as they are stored: JSON of about 100,000 events. It takes some ten times
as much memory."""


def read_newer_rows(table: Table, before: int, after: int) -> pa.Table:
    """All rows that are in files which came between two snapshots, as they are; none if these files are large."""
    was, now = (_files(table, one) for one in (before, after))
    came = [now[path] for path in now.keys() - was.keys()]
    if sum(task.file.file_size_in_bytes for task in came) > _MOST_BYTES:
        came = []
    return ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(came)


def find_changed_keys(
    table: Table, before: int, after: int, columns: Sequence[str], *, came: bool = True
) -> pa.Table | None:
    """``columns`` of all rows that were added, changed or taken away, as they were and as they are, and of some others.

    They repeat. None if so many changed that it is not worth asking, or if the snapshots between are not kept any more.

    :param came: whether rows as they are count. Without them, none is found that is only new.
    """
    schema = table.schema().as_arrow()
    found = [pa.schema([schema.field(name) for name in columns]).empty_table()]
    steps = list(_steps(table, before, after))
    if not steps or steps[-1][0] != before:
        return None
    for was, now in steps:
        more = _between(table, was, now, columns, came=came)
        if more is None:
            return None
        found += [one.cast(found[0].schema) for one in more]
    return pa.concat_tables(found)


def _steps(table: Table, before: int, after: int) -> Iterator[tuple[int, int]]:
    """Pairs of snapshots, the newest first, that lead from one to the other but for those where files were only written
    anew, as by compaction."""
    now, at = after, table.snapshot_by_id(after)
    while at and at.snapshot_id != before:
        if at.summary and at.summary.operation is Operation.REPLACE and at.parent_snapshot_id is not None:
            yield at.snapshot_id, now
            now = at.parent_snapshot_id
        at = table.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
    if at:
        yield before, now


def _between(table: Table, before: int, after: int, columns: Sequence[str], *, came: bool) -> list[pa.Table] | None:
    was, now = (_files(table, one) for one in (before, after))
    other = [was[path] for path in was.keys() - now.keys()]
    if came:
        other += [now[path] for path in now.keys() - was.keys()]
    deletes = {path: _deletes(now[path]) ^ _deletes(was[path]) for path in was.keys() & now.keys()}
    positions = deleted_positions(table.io, set().union(*deletes.values()))
    positions = {path: found for path, found in positions.items() if deletes.get(path)}
    if sum(task.file.record_count for task in other) + sum(map(_count, positions.values())) > _MOST_ROWS:
        return None
    return [
        *(_read(table.io, task.file.file_path, columns) for task in other),
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
