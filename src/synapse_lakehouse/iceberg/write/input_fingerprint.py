"""Rebuild a table only if its input changed: each snapshot records a fingerprint of its input.

The dbt materialization ``replace_on_branch`` does the same (``dbt/macros/replace_on_branch.sql``).
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.iceberg.write.commits import ensure_branch, get_parquet_schema, replace_content
from synapse_lakehouse.iceberg.write.tables import load_table_or_none
from synapse_lakehouse.parquet_writer import group_batches, write_parquet

_PROPERTY: Final = "built-from"
_PROPERTIES: Final = (_PROPERTY, "built-by", "state-rows", "state-rules")


def compute_fingerprint(catalog: Catalog, branch: str, tables: list[str], version: str) -> str:
    """Return the fingerprint of a table's input: the rows of ``tables`` on ``branch``, the ``version`` of the rules."""
    inputs = [version, *(str(read_fingerprint(catalog, name, branch)) for name in tables)]
    return hashlib.sha256(" ".join(inputs).encode()).hexdigest()


def read_fingerprint(catalog: Catalog, name: str, branch: str) -> str | None:
    """Return the fingerprint of the input of a table's rows on ``branch``; its snapshot ID if it records none."""
    snapshot = find_snapshot(load_table_or_none(catalog, name), branch)
    return get_snapshot_property(snapshot, _PROPERTY) or str(snapshot.snapshot_id) if snapshot else None


def find_snapshot(table: Table | None, branch: str) -> Snapshot | None:
    """Return the snapshot that a reader on ``branch`` reads: that of the branch, or else of main."""
    refs = table.refs() if table else {}
    ref = refs.get(branch) or refs.get("main")
    return table.snapshot_by_id(ref.snapshot_id) if table and ref else None


def get_snapshot_property(snapshot: Snapshot | None, name: str) -> str | None:
    """Return the property ``name`` of a snapshot's summary."""
    return snapshot.summary.get(name) if snapshot and snapshot.summary else None


def get_fingerprint_properties(summary: Any, snapshot_id: int) -> dict[str, str]:
    """Return fingerprint properties for a snapshot with the same rows as the snapshot ``snapshot_id``.

    :param summary: the summary of that snapshot.
    """
    return {_PROPERTY: str(snapshot_id)} | {name: str(summary[name]) for name in _PROPERTIES if name in summary}


def replace_table(
    spark: SparkSession,
    name: str,
    branch: str,
    rows: DataFrame,
    fingerprint: str,
    more: Mapping[str, str] | None = None,
) -> None:
    """Replace all rows of a table, as one commit on ``branch``, to which the session writes.

    :param fingerprint: fingerprint of the input of ``rows``.
    :param more: further properties of the snapshot.
    """
    ensure_branch(spark, name, branch)
    rows.createOrReplaceTempView("new_rows")
    properties = [
        f"`snapshot-property.{key}` = '{value}'" for key, value in _snapshot_properties(fingerprint, more).items()
    ]
    spark.sql(f"""
        insert into {name} with ({", ".join(properties)}) replace where true
        select {", ".join(spark.table(name).columns)} from new_rows
    """)  # noqa: S608


def replace_table_from_arrow(
    spark: SparkSession,
    table: Table,
    branch: str,
    rows: Iterable[pa.RecordBatch],
    fingerprint: str,
    more: Mapping[str, str] | None = None,
) -> None:
    """Like :func:`replace_table`, with rows that this process writes without Spark.

    :param rows: batches with the columns of the table, or more.
    """
    name, columns = ".".join(table.name()), table.schema().column_names
    groups = (group.select(columns) for group in group_batches(rows))
    file = write_parquet(groups, get_parquet_schema(table, columns), table.io, f"{table.location()}/data")
    replace_content(spark, name, branch, [file.path] if file else [], _snapshot_properties(fingerprint, more))


def _snapshot_properties(fingerprint: str, more: Mapping[str, str] | None) -> dict[str, str]:
    return {_PROPERTY: fingerprint, **(more or {})}
