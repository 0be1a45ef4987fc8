"""The newest rows of an append-only table, without reading all of it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

_NEAR: Final = (timedelta(hours=1), timedelta(days=2))


def read_newest_rows(
    table: Table, moment: str, wanted: BooleanExpression | None = None, columns: Sequence[str] = ("*",)
) -> pa.Table:
    """Rows of the first of the :func:`iterate_recent_spans` that has any, or none."""
    found = pa.table({})
    for found in iterate_recent_spans(table, moment, wanted, columns):
        if found.num_rows:
            break
    return found


def iterate_recent_spans(
    table: Table, moment: str, wanted: BooleanExpression | None = None, columns: Sequence[str] = ("*",)
) -> Iterator[pa.Table]:
    """Rows of the last hour, then of the last days, then all, sorted by the time in the column ``moment``.

    Each append is a file with its least and greatest time: those of the recent ones are few.

    :param wanted: which rows count; by default all.
    """
    now = datetime.now(UTC)
    near: list[BooleanExpression] = [GreaterThanOrEqual(term=moment, value=(now - one).isoformat()) for one in _NEAR]
    for span in (*near, AlwaysTrue()):
        rows = And(span, wanted or AlwaysTrue())
        yield table.scan(row_filter=rows, selected_fields=tuple(columns)).to_arrow().sort_by(moment)


def read_rows_since_run(table: Table, run_id: str, moment: str, columns: Sequence[str]) -> pa.Table:
    """Rows since the first of a run, by the time in the column ``moment``; with them others of the same files.

    They are found by the bounds of the data files, with one scan plan.
    """
    files = [
        (one, get_column_bounds(table, one, "run_id"), get_column_bounds(table, one, moment))
        for one in table.scan().plan_files()
    ]
    of_run = (times for _, runs, times in files if runs is None or runs[0] <= run_id <= runs[1])
    firsts: list[Any] = [times and times[0] for times in of_run]
    since = None if None in firsts else min(firsts, default=None)
    newer = [one for one, _, times in files if since is None or times is None or times[1] >= since]
    return read_planned_files(table, newer, columns)


def read_planned_files(table: Table, files: Sequence[FileScanTask], columns: Sequence[str] = ("*",)) -> pa.Table:
    """All rows of some of the files that were planned for ``table``."""
    wanted = table.scan(selected_fields=tuple(columns)).projection()
    return ArrowScan(table.metadata, table.io, wanted, AlwaysTrue()).to_table(files)


def get_column_bounds(table: Table, file: FileScanTask, column: str) -> tuple[Any, Any] | None:
    """Lower and upper bound of a column's values in a file, times in microseconds; None if the file has no bounds.

    Bounds may be truncated, so the lower one may be less than the least value, and the upper one greater.
    """
    field = table.schema().find_field(column)
    known = (file.file.lower_bounds, file.file.upper_bounds)
    if not isinstance(field.field_type, PrimitiveType) or any(field.field_id not in of for of in known):
        return None
    least, greatest = (from_bytes(field.field_type, of[field.field_id]) for of in known)
    return least, greatest
