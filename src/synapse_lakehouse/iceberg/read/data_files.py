"""Read Parquet files that were written for an Iceberg table.

Spark's own Parquet reader cannot open files in object stores. Iceberg's file access can.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from synapse_lakehouse.iceberg.read.changed_rows import read_tasks
from synapse_lakehouse.iceberg.spark.session import get_iceberg_class, load_iceberg_table
from synapse_lakehouse.iceberg.write.commits import read_data_file


def read_data_files(spark: SparkSession, name: str, paths: Iterable[str]) -> DataFrame:
    """Return all rows of Parquet files that were written for the table ``name``, even if it does not refer to them."""
    table = load_iceberg_table(spark, name)
    schema = get_iceberg_class(spark, "SchemaParser").toJson(table.schema())
    spec = get_iceberg_class(spark, "PartitionSpecParser").toJson(table.spec())
    everything = get_iceberg_class(spark, "expressions.Expressions").alwaysTrue()
    residuals = get_iceberg_class(spark, "expressions.ResidualEvaluator").unpartitioned(everything)
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session has a gateway"
    no_deletes = gateway.new_array(get_iceberg_class(spark, "DeleteFile"), 0)
    scan_task = get_iceberg_class(spark, "BaseFileScanTask")
    files = (read_data_file(spark, table, path) for path in paths)
    return read_tasks(spark, table, [scan_task(file, no_deletes, schema, spec, residuals) for file in files])
