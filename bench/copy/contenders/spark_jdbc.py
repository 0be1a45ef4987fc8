"""Copy a table with partitioned JDBC reads of Spark to an Iceberg table."""

from functools import reduce
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

from bench import spark_runs
from bench.copy import select_statements
from bench.copy.contenders import CopyResult
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.spark.session import create_spark_session

_FETCH_SIZE = 10_000


class SparkJdbc:
    """A warm Spark driver that reads the SELECTs of the page ranges in parallel."""

    def __init__(self, settings: Settings) -> None:
        spark_runs.set_driver_memory(settings)
        self.settings = settings
        self.spark = create_spark_session("bench-jdbc", settings)
        self.spark.sql("create namespace if not exists peer")

    def clear(self) -> None:
        """Drop all tables and their files."""
        for row in self.spark.sql("show tables in peer").collect():
            self.spark.sql(f"drop table peer.{row.tableName} purge")

    def copy(self, table: str) -> CopyResult:
        """Create ``peer.<table>`` and append all rows to it."""
        frame = reduce(DataFrame.union, map(self._read, select_statements.partition_selects(self.settings, table)))
        writer = frame.writeTo(f"peer.{table}").using("iceberg").tableProperty("format-version", "2")
        writer = writer.tableProperty("write.parquet.compression-codec", "zstd")
        writer.tableProperty("write.parquet.compression-level", str(select_statements.COMPRESSION_LEVEL)).create()
        summary = self.spark.sql(
            f"select summary['total-records'], summary['total-files-size'] from peer.{table}.snapshots"  # noqa: S608
        ).collect()[-1]
        return CopyResult(int(summary[0]), int(summary[1]))

    def close(self) -> None:
        """Stop Spark."""
        self.spark.stop()

    def _read(self, statement: str) -> DataFrame:
        uri = urlsplit(str(self.settings.synapse_dsn))
        return (
            self.spark.read.format("jdbc")
            .option("url", f"jdbc:postgresql://{uri.hostname}:{uri.port}{uri.path}")
            .option("user", uri.username or "")
            .option("password", unquote(uri.password or ""))
            .option("driver", "org.postgresql.Driver")
            .option("fetchsize", str(_FETCH_SIZE))
            .option("query", statement)
            .load()
        )
