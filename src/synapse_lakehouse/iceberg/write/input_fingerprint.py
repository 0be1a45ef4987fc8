"""Rebuild a table only if its input changed: each snapshot records a fingerprint of its input.

The dbt materialization ``replace_on_branch`` does the same (``dbt/macros/replace_on_branch.sql``).
"""

import hashlib
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.iceberg.write.commits import ensure_branch
from synapse_lakehouse.iceberg.write.tables import load_table_or_none

_PROPERTY: Final = "built-from"
_PROPERTIES: Final = (_PROPERTY, "built-by")


def compute_fingerprint(catalog: Catalog, branch: str, tables: list[str], version: str) -> str:
    """Return the fingerprint of the rows of ``tables`` on ``branch``, and of the ``version`` of the rules."""
    inputs = [version, *(str(read_fingerprint(catalog, name, branch)) for name in tables)]
    return hashlib.sha256(" ".join(inputs).encode()).hexdigest()


def read_fingerprint(catalog: Catalog, name: str, branch: str) -> str | None:
    """Return the input fingerprint that a table's snapshot on ``branch`` records, or else the ID of the snapshot."""
    snapshot = find_branch_snapshot(load_table_or_none(catalog, name), branch)
    return get_snapshot_property(snapshot, _PROPERTY) or str(snapshot.snapshot_id) if snapshot else None


def find_branch_snapshot(table: Table | None, branch: str) -> Snapshot | None:
    """Return the snapshot that a reader on ``branch`` reads: that of the branch, or else of main."""
    refs = table.refs() if table else {}
    ref = refs.get(branch) or refs.get("main")
    return table.snapshot_by_id(ref.snapshot_id) if table and ref else None


def find_branch_snapshot_id(table: Table | None, branch: str) -> int | None:
    """Return the ID of the snapshot that a reader on ``branch`` reads; None if there is no snapshot."""
    snapshot = find_branch_snapshot(table, branch)
    return snapshot.snapshot_id if snapshot else None


def get_snapshot_property(snapshot: Snapshot | None, name: str) -> str | None:
    """Return the property ``name`` of a snapshot's summary."""
    return snapshot.summary.get(name) if snapshot and snapshot.summary else None


def get_fingerprint_properties(summary: Any, snapshot_id: int) -> dict[str, str]:
    """Return fingerprint properties for a snapshot with the same rows as the snapshot ``snapshot_id``.

    :param summary: the summary of that snapshot.
    """
    return {_PROPERTY: str(snapshot_id)} | {name: str(summary[name]) for name in _PROPERTIES if name in summary}


def replace_table(spark: SparkSession, name: str, branch: str, rows: DataFrame, fingerprint: str) -> None:
    """Replace all rows of a table, as one commit on ``branch``, to which the session writes.

    :param rows: the new rows, with all columns of the table.
    :param fingerprint: fingerprint of the input of ``rows``.
    """
    ensure_branch(spark, name, branch)
    _insert(spark, name, "replace where true", rows, fingerprint)


def append_rows(spark: SparkSession, name: str, rows: DataFrame, fingerprint: str) -> None:
    """Add rows to a table on the session's branch, which exists.

    :param rows: the additional rows, with all columns of the table.
    :param fingerprint: fingerprint of the input of all rows of the table.
    """
    _insert(spark, name, "", rows, fingerprint)


def _insert(spark: SparkSession, name: str, replaced: str, rows: DataFrame, fingerprint: str) -> None:
    rows.createOrReplaceTempView("new_rows")
    columns = ", ".join(spark.table(name).columns)
    spark.sql(
        f"insert into {name} with (`snapshot-property.{_PROPERTY}` = '{fingerprint}') {replaced}"  # noqa: S608
        f" select {columns} from new_rows"
    )
