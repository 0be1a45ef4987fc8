"""Record the keys that Synapse deleted. The reason of a deletion is that the row's room or event was deleted too."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run

_TABLE: Final = "audit.deletions"

_REASONS: Final = {("rooms", "room_id"): "its room was deleted", ("events", "event_id"): "its event was purged"}
"""Reason of a deletion, by the table and column of a row that was deleted at the same time."""


def record_deleted_keys(deleted: Mapping[str, DataFrame], run: Run, now: datetime) -> None:
    """Append to ``audit.deletions`` with Spark, because a purge or a compressor may delete many millions of rows.

    :param deleted: by table, the primary key columns of the deleted rows.
    """
    if not deleted:
        return
    rows = build_deletion_rows(deleted, now).withColumns(
        {name: f.lit(value) for name, value in store.get_run_columns(run).items()}
    )
    rows.select(*store.AUDIT_SCHEMAS[_TABLE].names).writeTo(_TABLE).append()


def build_deletion_rows(deleted: Mapping[str, DataFrame], now: datetime) -> DataFrame:
    """Return rows of ``audit.deletions`` without the columns of the run.

    :param deleted: by table, the primary key columns of the deleted rows.
    """
    return reduce(DataFrame.unionAll, _build_table_rows(deleted, now))


def _build_table_rows(deleted: Mapping[str, DataFrame], now: datetime) -> Iterator[DataFrame]:
    for table, keys in deleted.items():
        keyed_rows = keys.select("*", f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("key"))
        reasons = []
        for (other, column), reason in _REASONS.items():
            if other in deleted and column in keys.columns:
                deleted_with = deleted[other].select(column).distinct().withColumn(f"reason by {other}", f.lit(reason))
                keyed_rows = keyed_rows.join(deleted_with, column, "left")
                reasons.append(f"reason by {other}")
        yield keyed_rows.select(
            f.lit(table).alias("table_name"),
            "key",
            f.coalesce(*map(f.col, reasons), f.lit(None).cast("string")).alias("reason"),
            f.lit(now).alias("deleted_at"),
        )
