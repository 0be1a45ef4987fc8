"""Replace some rows of a table on a run's branch, going on from what the branch has."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from synapse_lakehouse.lake.files import data_file
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
