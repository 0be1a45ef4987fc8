"""The rows in which two snapshots of a table differ, read by Spark's tasks from the files that differ.

Iceberg's changelog views cannot read tables with delete files.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java, load_iceberg_table


def read_rows_at(spark: SparkSession, name: str, snapshot_id: int | None) -> DataFrame:
    """Return the rows of a snapshot, with all columns of the table; no rows for a table without a snapshot."""
    if snapshot_id is None:
        return spark.table(name).limit(0)
    return spark.read.option("versionAsOf", snapshot_id).table(name)


def read_changed_rows(spark: SparkSession, name: str, before: int | None, after: int | None) -> DataFrame:
    """Return the rows that only one of two snapshots has. The second snapshot is a descendant of the first.

    The columns are those of the table, and ``_change_type``: INSERT for a row of the second snapshot, DELETE for a row
    of the first. An unchanged row that was written to another file occurs with both.
    """
    none = read_rows_at(spark, name, after).limit(0)
    inserted = deleted = none
    if before != after:
        table = load_iceberg_table(spark, name)
        old, new = scan_tasks(table, before), scan_tasks(table, after)
        if added := [new[path] for path in new.keys() - old.keys()]:
            inserted = read_tasks(spark, table, added).select(none.columns)
        if removed := [old[path] for path in old.keys() - new.keys()]:
            deleted = read_tasks(spark, table, removed).select(none.columns)
        # Files of both snapshots. In the second snapshot, more of their rows are deleted.
        if common := [
            path for path in old.keys() & new.keys() if list_delete_files(old[path]) != list_delete_files(new[path])
        ]:
            position = ["_file", "_pos"]
            rows = read_tasks(spark, table, (old[path] for path in common)).select(*none.columns, *position)
            remaining = read_tasks(spark, table, (new[path] for path in common)).select(position)
            deleted = deleted.unionAll(rows.join(remaining, position, "left_anti").select(none.columns))
    inserted, deleted = (
        rows.withColumn("_change_type", f.lit(change)) for change, rows in (("INSERT", inserted), ("DELETE", deleted))
    )
    return inserted.unionAll(deleted)


def read_rows_changed_since(spark: SparkSession, table: Table, before: int, after: int) -> DataFrame | None:
    """Return the rows that changed from one Iceberg snapshot to a later one, with columns of :func:`read_changed_rows`.

    Compactions between these snapshots are left out. The result is None if a snapshot between them has expired.
    """
    steps = list(_list_steps(table, before, after))
    if not steps or steps[-1][0] != before:
        return None
    name = ".".join(table.name())
    return reduce(DataFrame.unionAll, (read_changed_rows(spark, name, first, last) for first, last in steps))


def _list_steps(table: Table, before: int, after: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of snapshots, the newest first, that lead from ``before`` to ``after`` and skip compactions."""
    last, snapshot = after, table.snapshot_by_id(after)
    while snapshot and snapshot.snapshot_id != before:
        parent = snapshot.parent_snapshot_id
        if snapshot.summary and snapshot.summary.operation is Operation.REPLACE and parent is not None:
            yield snapshot.snapshot_id, last
            last = parent
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    if snapshot:
        yield before, last


def scan_tasks(table: Any, snapshot_id: int | None) -> Mapping[str, Any]:
    """Return Iceberg's tasks that read a snapshot of a (Java) table, by the path of their data file."""
    if snapshot_id is None:
        return {}
    tasks = table.newScan().useSnapshot(snapshot_id).planFiles()
    return {task.file().location(): task for task in iterate_java(tasks)}


def list_delete_files(task: Any) -> set[str]:
    """Return the paths of the delete files that apply to the data file of a task."""
    return {file.location() for file in iterate_java(task.deletes())}


def read_tasks(spark: SparkSession, table: Any, tasks: Iterable[Any]) -> DataFrame:
    """Return the rows that scan tasks of a (Java) table read, as Iceberg's own compaction reads them."""
    name, staged = uuid.uuid4().hex, spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for task in tasks:
        staged.add(task)
    get_iceberg_class(spark, "spark.ScanTaskSetManager").get().stageTasks(table, name, staged)
    # SparkTableCache has a static method `get` and an instance method `get`, which py4j cannot distinguish.
    java = spark._jvm.java.lang  # type: ignore[union-attr]
    loader = java.Thread.currentThread().getContextClassLoader()
    cache = java.Class.forName("org.apache.iceberg.spark.SparkTableCache", True, loader)
    cache.getMethod("get", None).invoke(None, None).add(name, table)
    return spark.read.format("iceberg").load(name)
