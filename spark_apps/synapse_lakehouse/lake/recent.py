"""The newest rows of an append-only table, without reading all of it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual
from pyiceberg.table import Table

_NEAR: Final = (timedelta(hours=1), timedelta(days=2))


def newest(
    table: Table, moment: str, wanted: BooleanExpression | None = None, columns: Sequence[str] = ("*",)
) -> pa.Table:
    """Rows of the first of the :func:`spans` that has any, or none."""
    found = pa.table({})
    for found in spans(table, moment, wanted, columns):
        if found.num_rows:
            break
    return found


def spans(
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
