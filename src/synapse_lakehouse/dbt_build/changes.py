"""Create views of the rows that changed since the last release, for incremental dbt models.

The views replace Iceberg's changelog views, which cannot read tables with delete files. They have all columns of the
table, and ``_change_type``: INSERT for a row of the run's branch, DELETE for a row of main. Spark reads only the files
in which the two Iceberg snapshots differ.
"""

import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from dbt.contracts.graph.manifest import Manifest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, iterate_java, load_iceberg_table
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.tables import load_table_or_none

LEAST_EVENTS: Final = 100_000
"""With fewer events, a full build takes about as long as a partial build."""

_SOURCE: Final = "changes"
"""The dbt source that declares the views."""


def register_changes(
    spark: SparkSession, catalog: Catalog, branch: str, project: Manifest, least_events: int = LEAST_EVENTS
) -> bool:
    """Register the views of dbt's source ``changes``; return False without views if models have to be built in full.

    A full build is necessary if the last release lacks one of the tables, or has fewer than ``least_events`` events. If
    nothing changed, there are no views either, because then a model is built only if its rules changed.
    """
    sources = [source for source in project.sources.values() if source.source_name == _SOURCE]
    views = {source.name: source.config.meta for source in sources}
    names = {meta.get("changes_of") or meta["previous_of"] for meta in views.values()}
    tables = {name: load_table_or_none(catalog, name) for name in names}
    main = {name: _snapshot_id(table, "main") for name, table in tables.items()}
    head = {name: _snapshot_id(table, branch) for name, table in tables.items()}
    events = input_fingerprint.get_snapshot_property(
        input_fingerprint.find_snapshot(tables["bronze.events"], "main"), "total-records"
    )
    if not all(tables.values()) or main == head or int(events or 0) < least_events:
        return False

    def register(view: str) -> None:
        changed = views[view].get("changes_of")
        name = changed or views[view]["previous_of"]
        before, after = main[name], head[name]
        rows = _read_changes(spark, name, before, after) if changed else _read(spark, name, before)
        rows.createOrReplaceGlobalTempView(view)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(register, views))
    return True


def _snapshot_id(table: Table | None, branch: str) -> int | None:
    snapshot = input_fingerprint.find_snapshot(table, branch)
    return snapshot.snapshot_id if snapshot else None


def _read(spark: SparkSession, name: str, snapshot_id: int | None) -> DataFrame:
    """The rows of an Iceberg snapshot; no rows if ``snapshot_id`` is None."""
    if snapshot_id is None:
        return spark.table(name).limit(0)
    return spark.read.option("versionAsOf", snapshot_id).table(name)


def _read_changes(spark: SparkSession, name: str, before: int | None, after: int | None) -> DataFrame:
    """Rows that only one of two Iceberg snapshots has. Snapshot ``after`` is a descendant of ``before``."""
    none = _read(spark, name, after).limit(0)
    inserted = deleted = none
    if before != after:
        table = load_iceberg_table(spark, name)
        old, new = _scan_tasks(table, before), _scan_tasks(table, after)
        if added := [new[path] for path in new.keys() - old.keys()]:
            inserted = _read_tasks(spark, table, added).select(none.columns)
        if removed := [old[path] for path in old.keys() - new.keys()]:
            deleted = _read_tasks(spark, table, removed).select(none.columns)
        # In these files, further rows were deleted.
        if common := [path for path in old.keys() & new.keys() if _delete_files(old[path]) != _delete_files(new[path])]:
            position = ["_file", "_pos"]
            rows = _read_tasks(spark, table, (old[path] for path in common)).select(*none.columns, *position)
            remaining = _read_tasks(spark, table, (new[path] for path in common)).select(position)
            deleted = deleted.unionAll(rows.join(remaining, position, "left_anti").select(none.columns))
    inserted, deleted = (
        rows.withColumn("_change_type", f.lit(change)) for change, rows in (("INSERT", inserted), ("DELETE", deleted))
    )
    return inserted.unionAll(deleted)


def _scan_tasks(table: Any, snapshot_id: int | None) -> Mapping[str, Any]:
    """Iceberg's scan tasks for an Iceberg snapshot, by the path of their data file."""
    if snapshot_id is None:
        return {}
    tasks = table.newScan().useSnapshot(snapshot_id).planFiles()
    return {task.file().location(): task for task in iterate_java(tasks)}


def _delete_files(task: Any) -> set[str]:
    return {file.location() for file in iterate_java(task.deletes())}


def _read_tasks(spark: SparkSession, table: Any, tasks: Iterable[Any]) -> DataFrame:
    """The rows of scan tasks. They are read in the same way as by Iceberg's own compaction."""
    name, staged = uuid.uuid4().hex, spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for task in tasks:
        staged.add(task)
    get_iceberg_class(spark, "spark.ScanTaskSetManager").get().stageTasks(table, name, staged)
    # The class has a static method and an instance method with the name `get`, which py4j cannot distinguish.
    java = spark._jvm.java.lang  # type: ignore[union-attr]
    loader = java.Thread.currentThread().getContextClassLoader()
    cache = java.Class.forName("org.apache.iceberg.spark.SparkTableCache", True, loader)
    cache.getMethod("get", None).invoke(None, None).add(name, table)
    return spark.read.format("iceberg").load(name)
