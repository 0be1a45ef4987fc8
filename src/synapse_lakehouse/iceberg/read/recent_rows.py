"""Read the newest rows of an append-only table without reading the whole table."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

_SPANS: Final = (timedelta(hours=1), timedelta(days=2))


def read_newest_rows(
    table: Table, moment: str, row_filter: BooleanExpression | None = None, columns: Sequence[str] = ("*",)
) -> pa.Table:
    """Return the rows of the first span of :func:`iterate_recent_spans` that has rows; an empty table if none has."""
    rows = pa.table({})
    for rows in iterate_recent_spans(table, moment, row_filter, columns):
        if rows.num_rows:
            break
    return rows


def iterate_recent_spans(
    table: Table, moment: str, row_filter: BooleanExpression | None = None, columns: Sequence[str] = ("*",)
) -> Iterator[pa.Table]:
    """Yield rows of the last hour, then of the last two days, then all rows, sorted by the time column ``moment``.

    Each append writes a file with bounds of its times, so that few files are read for a short span.

    :param row_filter: condition for rows; by default all rows are returned.
    """
    now = datetime.now(UTC)
    spans: list[BooleanExpression] = [
        GreaterThanOrEqual(term=moment, value=(now - span).isoformat()) for span in _SPANS
    ]
    for span in (*spans, AlwaysTrue()):
        condition = And(span, row_filter or AlwaysTrue())
        yield table.scan(row_filter=condition, selected_fields=tuple(columns)).to_arrow().sort_by(moment)


def read_rows_since_run(table: Table, run_id: str, moment: str, columns: Sequence[str]) -> pa.Table:
    """Return the rows since a run's first row, according to the time column ``moment``.

    Earlier rows of the same files may be included. The bounds of the files' values show which files are needed.
    """
    files = [
        (file, get_column_bounds(table, file, "run_id"), get_column_bounds(table, file, moment))
        for file in table.scan().plan_files()
    ]
    of_run = (times for _, runs, times in files if runs is None or runs[0] <= run_id <= runs[1])
    firsts: list[Any] = [times and times[0] for times in of_run]
    since = None if None in firsts else min(firsts, default=None)
    newer = [file for file, _, times in files if since is None or times is None or times[1] >= since]
    return read_planned_files(table, newer, columns)


def read_planned_files(table: Table, files: Sequence[FileScanTask], columns: Sequence[str] = ("*",)) -> pa.Table:
    """Return all rows of ``files``, which a scan of ``table`` planned."""
    projection = table.scan(selected_fields=tuple(columns)).projection()
    return ArrowScan(table.metadata, table.io, projection, AlwaysTrue()).to_table(files)


def get_column_bounds(table: Table, file: FileScanTask, column: str) -> tuple[Any, Any] | None:
    """Return the lower and upper bound of a column in a file (times in microseconds); None if the file has no bounds.

    Iceberg may truncate bounds, so they may lie outside the values of the column.
    """
    field = table.schema().find_field(column)
    bounds = (file.file.lower_bounds, file.file.upper_bounds)
    if not isinstance(field.field_type, PrimitiveType) or any(field.field_id not in by_id for by_id in bounds):
        return None
    least, greatest = (from_bytes(field.field_type, by_id[field.field_id]) for by_id in bounds)
    return least, greatest
