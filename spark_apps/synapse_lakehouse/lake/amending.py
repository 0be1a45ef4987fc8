"""Replace some rows of a table on a run's branch, going on from what the branch has."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from synapse_lakehouse.lake.files import data_file, prepare_change, write_position_deletes
from synapse_lakehouse.lake.places import places
from synapse_lakehouse.lake.remaking import snapshot_of
from synapse_lakehouse.lake.session import iceberg_table


def amend(spark: SparkSession, name: str, branch: str, outdated: str, paths: Sequence[str], run_id: str) -> int:
    """Delete the rows for which ``outdated`` (Spark's SQL) holds and add the Parquet files ``paths``: the new snapshot.

    The session writes to ``branch``, which is made from main if the table does not have it yet.
    """
    table = iceberg_table(spark, name)
    if not table.refs().containsKey(branch) and table.currentSnapshot() is not None:
        table.manageSnapshots().createBranch(branch, table.currentSnapshot().snapshotId()).commit()
    spark.sql(f"delete from {name} where {outdated}")  # noqa: S608 - built from the catalogue's names
    table.refresh()
    append = table.newAppend().toBranch(branch).set("lakehouse.run", run_id)
    for path in paths:
        append.appendFile(data_file(spark, table, path))
    if paths:
        append.commit()
        table.refresh()
    return int(table.snapshot(branch).snapshotId())


def take_away(spark: SparkSession, table: Table, branch: str, keys: pa.Table, properties: Mapping[str, str]) -> None:
    """Delete the rows whose key is among ``keys``, in one commit with ``properties`` in its summary.

    They are looked for here, in a fraction of the time that Spark takes. Where there are none, nothing is committed.

    :param keys: of a table of millions of rows, a few; columns as the table has them.
    """
    at = snapshot_of(table, branch)
    found = places(table, at.snapshot_id, keys.column_names, keys) if at and keys.num_rows else {}
    if at and found:
        deletes = write_position_deletes(found, f"{table.location()}/data", table.io.properties)
        prepare_change(spark, ".".join(table.name()), branch, [], deletes, properties, at.snapshot_id).commit()
