"""Create views of the rows that changed since the last release, for incremental dbt models.

A view with ``changes_of`` compares main with the run's branch, and has the columns of
:func:`changed_rows.read_changed_rows`. A view with ``previous_of`` contains the rows of main.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dbt.contracts.graph.manifest import Manifest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.iceberg.read.changed_rows import read_changed_rows, read_rows_at
from synapse_lakehouse.iceberg.write import input_fingerprint
from synapse_lakehouse.iceberg.write.tables import load_table_or_none

LEAST_EVENTS: Final = 100_000
"""With fewer events, a full build takes about as long as a partial build."""

_SOURCE: Final = "changes"
"""The dbt source that declares the views."""


def register_changes(
    spark: SparkSession, catalog: Catalog, branch: str, project: Manifest, least_events: int = LEAST_EVENTS
) -> bool:
    """Register the views of dbt's source ``changes``, and return True. If no view is useful, return False.

    All models are built in full if the last release lacks one of the tables, or has fewer than ``least_events`` events.
    If nothing changed, the views are not needed either: a model is then built only if its rules changed.
    """
    sources = [source for source in project.sources.values() if source.source_name == _SOURCE]
    views = {source.name: source.config.meta for source in sources}
    names = {meta.get("changes_of") or meta["previous_of"] for meta in views.values()}
    tables = {name: load_table_or_none(catalog, name) for name in names}
    main, head = (
        {name: input_fingerprint.find_branch_snapshot_id(table, of) for name, table in tables.items()}
        for of in ("main", branch)
    )
    events = input_fingerprint.get_snapshot_property(
        input_fingerprint.find_branch_snapshot(tables["bronze.events"], "main"), "total-records"
    )
    if not all(tables.values()) or main == head or int(events or 0) < least_events:
        return False

    def register(view: str) -> None:
        changed = views[view].get("changes_of")
        name = changed or views[view]["previous_of"]
        before, after = main[name], head[name]
        rows = read_changed_rows(spark, name, before, after) if changed else read_rows_at(spark, name, before)
        rows.createOrReplaceGlobalTempView(view)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(register, views))
    return True
