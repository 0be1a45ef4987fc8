"""Replace some rows of a table on a branch."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from synapse_lakehouse.iceberg.spark.session import load_iceberg_table
from synapse_lakehouse.iceberg.write.commits import ensure_branch, read_data_file


def replace_rows(spark: SparkSession, name: str, branch: str, outdated: str, paths: Sequence[str], run_id: str) -> int:
    """Delete rows by the SQL condition ``outdated`` and add the Parquet files ``paths``; return the new snapshot ID.

    The session writes to ``branch``, which is created at main unless it exists.
    """
    table = load_iceberg_table(spark, name)
    ensure_branch(spark, name, branch)
    spark.sql(f"delete from {name} where {outdated}")  # noqa: S608 - built from the catalogue's names
    table.refresh()
    append = table.newAppend().toBranch(branch).set("lakehouse.run", run_id)
    for path in paths:
        append.appendFile(read_data_file(spark, table, path))
    if paths:
        append.commit()
        table.refresh()
    return int(table.snapshot(branch).snapshotId())
