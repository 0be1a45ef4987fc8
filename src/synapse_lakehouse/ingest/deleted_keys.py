"""Rows that the source no longer has, and why, as far as other rows that went with them tell."""

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
"""Why a row went that has a column of a table, where that table's row went, too."""


def record_deleted_keys(deleted: Mapping[str, DataFrame], run: Run, now: datetime) -> None:
    """Write ``audit.deletions``, by Spark: a purge or a compressor takes away many millions of rows.

    :param deleted: keys by table.
    """
    if not deleted:
        return
    rows_of_run = build_deletion_rows(deleted, now).withColumns(
        {name: f.lit(value) for name, value in store.get_run_columns(run).items()}
    )
    rows_of_run.select(*store.AUDIT_SCHEMAS[_TABLE].names).writeTo(_TABLE).append()


def build_deletion_rows(deleted: Mapping[str, DataFrame], now: datetime) -> DataFrame:
    """Columns of ``audit.deletions`` that no run is needed for.

    :param deleted: keys by table.
    """
    return reduce(DataFrame.unionAll, _rows(deleted, now))


def _rows(deleted: Mapping[str, DataFrame], now: datetime) -> Iterator[DataFrame]:
    for table, keys in deleted.items():
        named = keys.select("*", f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("key"))
        told = []
        for (other, column), reason in _REASONS.items():
            if other in deleted and column in keys.columns:
                went = deleted[other].select(column).distinct().withColumn(f"{other} went", f.lit(reason))
                named = named.join(went, column, "left")
                told.append(f"{other} went")
        yield named.select(
            f.lit(table).alias("table_name"),
            "key",
            f.coalesce(*map(f.col, told), f.lit(None).cast("string")).alias("reason"),
            f.lit(now).alias("deleted_at"),
        )
