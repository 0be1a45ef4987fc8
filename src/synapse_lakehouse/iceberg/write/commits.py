"""Commit Parquet files that workers wrote to a branch of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, load_iceberg_table


@dataclass(frozen=True)
class CommitResult:
    """Result of a commit: the branch's new snapshot, the added rows, and the table's files and bytes afterwards."""

    snapshot_id: int
    rows_added: int
    files: int
    bytes: int


def get_parquet_schema(table: Table, columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of ``columns`` with the field IDs of ``table`` in the metadata ``PARQUET:field_id``."""
    schema = schema_to_pyarrow(table.schema().select(*columns))
    return pa.schema([_without_large_string(schema.field(name)) for name in columns])


def set_or_remove_branch(spark: SparkSession, name: str, branch: str, at: int | None) -> None:
    """Point ``branch`` of a table at the snapshot ``at``; with None, remove the branch."""
    table = load_current_table(spark, name)
    if at is not None:
        _point(table, branch, at)
    elif table.refs().containsKey(branch):
        table.manageSnapshots().removeBranch(branch).commit()


def ensure_branch(spark: SparkSession, name: str, branch: str) -> None:
    """Create ``branch`` of a table at main unless it exists."""
    _ensure_branch(load_current_table(spark, name), branch)


def replace_content(
    spark: SparkSession, name: str, branch: str, paths: Sequence[str], properties: Mapping[str, str]
) -> CommitResult:
    """Replace all content of ``name`` on ``branch`` by the files ``paths``, in one commit with ``properties``.

    A missing branch is created at main.
    """
    table = load_current_table(spark, name)
    _ensure_branch(table, branch)
    everything = get_iceberg_class(spark, "expressions.Expressions").alwaysTrue()
    overwrite = table.newOverwrite().overwriteByRowFilter(everything)
    for path in paths:
        overwrite.addFile(read_data_file(spark, table, path))
    _set(overwrite, branch, properties).commit()
    return _committed(table, branch)


def append_files(
    spark: SparkSession, name: str, branch: str, paths: Sequence[str], properties: Mapping[str, str]
) -> CommitResult:
    """Add the Parquet files ``paths`` to an existing branch, in one commit with ``properties``."""
    table = load_current_table(spark, name)
    append = table.newAppend()
    for path in paths:
        append.appendFile(read_data_file(spark, table, path))
    _set(append, branch, properties).commit()
    return _committed(table, branch)


def describe_snapshot(table: Table, snapshot_id: int) -> CommitResult:
    """Return an existing Iceberg snapshot of ``table`` as the result of a commit that added nothing."""
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot
    assert snapshot.summary
    totals = snapshot.summary.additional_properties
    counts = (int(totals.get(f"total-{name}") or 0) for name in ("data-files", "files-size"))
    return CommitResult(snapshot.snapshot_id, 0, *counts)


def load_current_table(spark: SparkSession, name: str) -> Any:
    """Return the Iceberg (Java) table with its newest metadata."""
    table = load_iceberg_table(spark, name)
    table.refresh()
    return table


def _ensure_branch(table: Any, branch: str) -> None:
    main = table.currentSnapshot()
    if main and not table.refs().containsKey(branch):
        _point(table, branch, main.snapshotId())


def _point(table: Any, branch: str, at: int) -> None:
    # A commit that creates its branch starts its totals at zero, and engines would plan with wrong totals.
    refs = table.refs()
    if not refs.containsKey(branch):
        table.manageSnapshots().createBranch(branch, at).commit()
    elif refs.get(branch).snapshotId() != at:
        table.manageSnapshots().replaceBranch(branch, at).commit()


def read_data_file(spark: SparkSession, table: Any, path: str) -> Any:
    """Return the Parquet file at ``path`` as a data file of Iceberg's (Java) ``table``, with its metrics."""
    file = table.io().newInputFile(path)
    config = get_iceberg_class(spark, "MetricsConfig").forTable(table)
    metrics = get_iceberg_class(spark, "parquet.ParquetUtil").fileMetrics(file, config)
    return _data_file(spark, table, file).withMetrics(metrics).build()


def get_recorded_path(spark: SparkSession, table: Any, path: str) -> str:
    """Return the path under which ``table`` lists a file: Hadoop writes ``file:/`` for ``file:///``."""
    file = table.io().newInputFile(path)
    return str(_data_file(spark, table, file).withRecordCount(0).build().location())


def _data_file(spark: SparkSession, table: Any, file: Any) -> Any:
    return get_iceberg_class(spark, "DataFiles").builder(table.spec()).withInputFile(file).withFormat("parquet")


def _set(update: Any, branch: str, properties: Mapping[str, str]) -> Any:
    for key, value in properties.items():
        update.set(key, value)
    return update.toBranch(branch)


def _committed(table: Any, branch: str) -> CommitResult:
    table.refresh()
    snapshot = table.snapshot(branch)
    summary = snapshot.summary()
    counts = ("added-records", "total-data-files", "total-files-size")
    return CommitResult(int(snapshot.snapshotId()), *(int(summary.get(name) or 0) for name in counts))


def _without_large_string(field: pa.Field) -> pa.Field:
    # PyIceberg has large_string where PostgreSQL's driver has string; Parquet has one type for both.
    kind = pa.string() if pa.types.is_large_string(field.type) else field.type
    return field.with_type(kind)
