"""Commit Parquet files that workers wrote to a branch of a table."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java, load_iceberg_table
from synapse_lakehouse.iceberg.write.places import COLUMNS, Places


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


def reset_branch(spark: SparkSession, name: str, branch: str, at: int | None) -> None:
    """Point ``branch`` of a table at the snapshot ``at``; with None, remove the branch."""
    table = _load_current(spark, name)
    if at is not None:
        _point(table, table, branch, at)
    elif table.refs().containsKey(branch):
        table.manageSnapshots().removeBranch(branch).commit()


def ensure_branch(spark: SparkSession, name: str, branch: str) -> None:
    """Create ``branch`` of a table at main unless it exists."""
    _ensure_branch(_load_current(spark, name), branch)


def replace_content(
    spark: SparkSession, name: str, branch: str, paths: Sequence[str], properties: Mapping[str, str]
) -> CommitResult:
    """Replace all content of ``name`` on ``branch`` by the files ``paths``, in one commit with ``properties``.

    A missing branch is created at main.
    """
    table = _load_current(spark, name)
    _ensure_branch(table, branch)
    everything = get_iceberg_class(spark, "expressions.Expressions").alwaysTrue()
    overwrite = table.newOverwrite().overwriteByRowFilter(everything)
    for path in paths:
        overwrite.addFile(read_data_file(spark, table, path))
    _set(spark, overwrite, branch, properties).commit()
    return _committed(table, branch)


def prepare_row_change(
    spark: SparkSession,
    name: str,
    branch: str,
    paths: Sequence[str],
    deletes: str | None,
    properties: Mapping[str, str],
    at: int | None = None,
) -> "PreparedCommit":
    """Prepare a commit that adds ``paths`` to ``branch`` and deletes the rows at the positions in the file ``deletes``.

    :param at: snapshot on which the commit is based; by default the branch's newest.
    """
    table = _load_current(spark, name)
    transaction = table.newTransaction()
    if at is not None:
        _point(table, transaction, branch, at)
    delta = transaction.newRowDelta()
    for path in paths:
        delta.addRows(read_data_file(spark, table, path))
    if deletes:
        delta.addDeletes(_delete_file(spark, table, deletes))
    _set(spark, delta, branch, properties).commit()
    prepare_again = partial(prepare_row_change, spark, name, branch, paths, deletes, properties, at)
    return PreparedCommit(table, transaction, branch, prepare_again)


@dataclass(frozen=True)
class PreparedCommit:
    """A commit whose manifests are written; :meth:`commit` writes the metadata."""

    _table: Any
    _transaction: Any
    _branch: str
    _prepare_again: Callable[[], "PreparedCommit"]

    def commit(self) -> CommitResult:
        """Commit the change as the newest snapshot of the branch."""
        try:
            self._transaction.commitTransaction()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "CommitFailedException":
                raise
            # Another commit changed the table, such as a property: Iceberg does not retry a change of branches.
            return self._prepare_again().commit()
        return _committed(self._table, self._branch)

    def abandon(self) -> None:
        """Delete the manifest and the manifest list. Maintenance deletes the other files as orphan files."""
        io, snapshot = self._table.io(), self._transaction.table().snapshot(self._branch)
        with suppress(Py4JJavaError):
            for manifest in iterate_java(snapshot.allManifests(io)):
                if manifest.snapshotId() == snapshot.snapshotId():
                    io.deleteFile(manifest.path())
            io.deleteFile(snapshot.manifestListLocation())


def write_position_deletes(places: Places, folder: str, io_properties: Mapping[str, str]) -> str:
    """Write ``places`` as an Iceberg position delete file under ``folder`` and return its path."""
    path = f"{folder}/{uuid.uuid4()}-deletes.parquet"
    files = sorted(places)
    positions = pa.chunked_array([pa.concat_arrays(places[file]).sort() for file in files])
    numbers = np.repeat(np.arange(len(files), dtype=np.int32), [len(chunk) for chunk in positions.chunks])
    deletes = [pa.DictionaryArray.from_arrays(numbers, pa.array(files, pa.string())), positions]
    with load_file_io(dict(io_properties), path).new_output(path).create() as stream:
        # Without Arrow's schema, which would give the paths a dictionary type.
        pq.write_table(pa.table(deletes, schema=_DELETES), stream, store_schema=False)
    return path


# Field IDs that Iceberg's specification reserves for the columns of position delete files.
_DELETES = pa.schema(
    [
        # Millions of rows have few paths, which are long.
        pa.field(
            COLUMNS[0],
            pa.dictionary(pa.int32(), pa.string()),
            nullable=False,
            metadata={"PARQUET:field_id": "2147483546"},
        ),
        pa.field(COLUMNS[1], pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


def _load_current(spark: SparkSession, name: str) -> Any:
    table = load_iceberg_table(spark, name)
    table.refresh()
    return table


def _ensure_branch(table: Any, branch: str) -> None:
    main = table.currentSnapshot()
    if main and not table.refs().containsKey(branch):
        _point(table, table, branch, main.snapshotId())


def _point(table: Any, on: Any, branch: str, at: int) -> None:
    # A commit that creates its branch starts its totals at zero, and engines would plan with wrong totals.
    refs = table.refs()
    if not refs.containsKey(branch):
        on.manageSnapshots().createBranch(branch, at).commit()
    elif refs.get(branch).snapshotId() != at:
        on.manageSnapshots().replaceBranch(branch, at).commit()


def read_data_file(spark: SparkSession, table: Any, path: str) -> Any:
    """Return the Parquet file at ``path`` as a data file of Iceberg's (Java) ``table``, with its metrics."""
    file = table.io().newInputFile(path)
    config = get_iceberg_class(spark, "MetricsConfig").forTable(table)
    metrics = get_iceberg_class(spark, "parquet.ParquetUtil").fileMetrics(file, config)
    builder = get_iceberg_class(spark, "DataFiles").builder(table.spec())
    return builder.withInputFile(file).withFormat("parquet").withMetrics(metrics).build()


def _delete_file(spark: SparkSession, table: Any, path: str) -> Any:
    file = table.io().newInputFile(path)
    config = get_iceberg_class(spark, "MetricsConfig").forPositionDelete()
    metrics = get_iceberg_class(spark, "parquet.ParquetUtil").fileMetrics(file, config)
    builder = get_iceberg_class(spark, "FileMetadata").deleteFileBuilder(table.spec()).ofPositionDeletes()
    return builder.withInputFile(file).withFormat("parquet").withMetrics(metrics).build()


def _set(spark: SparkSession, update: Any, branch: str, properties: Mapping[str, str]) -> Any:
    for key, value in properties.items():
        update.set(key, value)
    # Iceberg polls its thread pool every 10 ms, but each step of these commits takes less.
    same_thread = get_iceberg_class(
        spark, "relocated.com.google.common.util.concurrent.MoreExecutors"
    ).newDirectExecutorService()
    return update.toBranch(branch).scanManifestsWith(same_thread)


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
