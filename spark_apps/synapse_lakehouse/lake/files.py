"""Make Parquet files that workers wrote a table's content, as one Iceberg commit on a branch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from synapse_lakehouse.lake.session import iceberg_table


@dataclass(frozen=True)
class Commit:
    """What a commit made: the branch's new snapshot, its rows, files and bytes."""

    snapshot_id: int
    rows: int
    files: int
    bytes: int


def parquet_schema(table: Table, columns: Sequence[str]) -> pa.Schema:
    """Arrow schema of ``columns`` with the field ids of ``table`` under ``PARQUET:field_id``."""
    schema = schema_to_pyarrow(table.schema().select(*columns))
    return pa.schema([_plain(schema.field(name)) for name in columns])


def replace_content(spark: SparkSession, name: str, branch: str, paths: Sequence[str], run_id: str) -> Commit:
    """Make ``paths`` the whole content of ``name`` on ``branch``, in one commit; main stays as it is.

    The branch is made from main if it does not exist. Files of an earlier attempt on it drop out.
    """
    jvm: Any = spark._jvm
    table = iceberg_table(spark, name)
    current = table.currentSnapshot()
    if current is not None and not table.refs().containsKey(branch):
        # A commit that makes its branch itself counts from zero, and its totals, which engines plan by, come out wrong.
        table.manageSnapshots().createBranch(branch, current.snapshotId()).commit()
        table.refresh()
    metrics_config = jvm.org.apache.iceberg.MetricsConfig.forTable(table)
    overwrite = (
        table.newOverwrite()
        .overwriteByRowFilter(jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue())
        .toBranch(branch)
        .set("lakehouse.run", run_id)
    )
    for path in paths:
        file = table.io().newInputFile(path)
        metrics = jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(file, metrics_config)
        overwrite.addFile(
            jvm.org.apache.iceberg.DataFiles.builder(table.spec())
            .withInputFile(file)
            .withFormat("parquet")
            .withMetrics(metrics)
            .build()
        )
    overwrite.commit()
    table.refresh()
    snapshot = table.snapshot(branch)
    summary = snapshot.summary()
    return Commit(
        int(snapshot.snapshotId()),
        *(int(summary.get(f"total-{what}") or 0) for what in ("records", "data-files", "files-size")),
    )


def _plain(field: pa.Field) -> pa.Field:
    # PyIceberg reads large_string where PostgreSQL's driver gives string; Parquet knows one type only.
    kind = pa.string() if pa.types.is_large_string(field.type) else field.type
    return field.with_type(kind)
