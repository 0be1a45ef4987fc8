"""Convert the rows of state groups into intervals. A piece of state applies to the positions of its interval."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synapse_lakehouse.numba_jit import Int32Array, Int64Array, cached_njit

INTERVAL_KEY = ("room_id", "type", "state_key")


def flatten_intervals(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split rows with nested ranges into intervals that do not overlap. The row with the innermost range applies.

    Adjacent intervals with the same key and event are merged. There are at most twice as many intervals as rows.

    :param batches: rows with the columns of ``silver.state_intervals``. ``first_position`` and ``last_position`` are
        the range of the row's group. The rows are ordered by INTERVAL_KEY, ``first_position``, the group's position,
        and ``event_id``. If a group has several rows with one key, the last of these rows applies.
    """
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        begins = np.flatnonzero(_new_keys(batch))
        # Rows before the first key that begins in this batch belong to the pending key.
        if pending and batch.num_rows and _same_key(pending[-1], batch):
            begins = begins[1:]
        if not len(begins):
            pending.append(batch)
            continue
        yield from _flatten([*pending, batch.slice(0, begins[-1])])
        pending = [batch.slice(begins[-1])]
    yield from _flatten(pending)


def _new_keys(batch: pa.RecordBatch | pa.Table) -> np.ndarray:
    """Whether each row has another key than the row before it. The value is true for the first row."""
    begins = np.zeros(batch.num_rows, bool)
    begins[:1] = True
    for name in INTERVAL_KEY:
        column = batch.column(name)
        begins[1:] |= pc.not_equal(column.slice(1), column.slice(0, max(batch.num_rows - 1, 0))).to_numpy(
            zero_copy_only=False
        )
    return begins


def _same_key(before: pa.RecordBatch, after: pa.RecordBatch) -> bool:
    return all(before.column(name)[-1].as_py() == after.column(name)[0].as_py() for name in INTERVAL_KEY)


def _flatten(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if not sum(batch.num_rows for batch in batches):
        return
    rows = pa.Table.from_batches(batches).combine_chunks()
    key = (np.cumsum(_new_keys(rows)) - 1).astype(np.int32)
    events = rows["event_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int32)
    first, last = rows["first_position"].to_numpy(), rows["last_position"].to_numpy()
    source, begins, ends = _innermost(key, first, last, events)
    intervals = rows.take(pa.array(source))
    for name, positions in (("first_position", begins), ("last_position", ends)):
        intervals = intervals.set_column(intervals.column_names.index(name), name, pa.array(positions))
    yield from intervals.to_batches()


@cached_njit
def _innermost(
    key: Int32Array, first: Int64Array, last: Int64Array, event: Int32Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Row index, first position and last position of each interval."""
    n = len(key)
    source, begins, ends = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    open_ = np.empty(n, np.int64)
    count, depth, at, since = 0, 0, 0, 0
    for row in range(n + 1):
        # Close the ranges that end before this row begins. At the end of a key, close all ranges.
        while depth and (row == n or key[open_[depth - 1]] != key[row] or last[open_[depth - 1]] < first[row]):
            top = open_[depth - 1]
            depth -= 1
            if at <= last[top]:
                count = _emit(source, begins, ends, event, count, since, top, at, last[top])
                at = last[top] + 1
        if row == n:
            break
        if row == 0 or key[row] != key[row - 1]:
            since = count
        if depth and at < first[row]:
            count = _emit(source, begins, ends, event, count, since, open_[depth - 1], at, first[row] - 1)
        at = first[row]
        open_[depth] = row
        depth += 1
    return source[:count], begins[:count], ends[:count]


@cached_njit
def _emit(
    source: Int64Array,
    begins: Int64Array,
    ends: Int64Array,
    event: Int32Array,
    count: int,
    since: int,
    row: int,
    begin: int,
    end: int,
) -> int:
    """Add an interval. If the previous interval is adjacent and has the same event and key, extend it instead.

    :param since: index of the key's first interval.
    """
    if count > since and ends[count - 1] + 1 == begin and event[source[count - 1]] == event[row]:
        ends[count - 1] = end
        return count
    source[count], begins[count], ends[count] = row, begin, end
    return count + 1
