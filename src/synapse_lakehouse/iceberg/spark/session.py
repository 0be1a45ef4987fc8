"""Spark sessions on the lake."""

import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.catalog import aws_keys, catalog, pgpass
from synapse_lakehouse.iceberg.spark import spark_network, worker_daemon
from synapse_lakehouse.java import class_archive, jars, runtime

_FIXED: Final = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.defaultCatalog": catalog.CATALOG_NAME,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.redaction.regex": catalog.get_redaction_pattern(),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": worker_daemon.__name__,
    # Small shuffles: a homeserver's tables are mostly small, and adaptive execution splits what is not.
    "spark.sql.shuffle.partitions": "8",
    # Rows that come from this process: Spark's optimiser looks at each of them again and again where they are few.
    "spark.sql.execution.arrow.localRelationThreshold": "4MB",
}


def create_spark_session(name: str, settings: Settings, branch: str | None = None) -> SparkSession:
    """The session of this process on the lake; with ``branch`` it reads and writes that branch of branched tables.

    Inside spark-submit the master and the jars are the submitter's; elsewhere it runs here, on all cores. One that runs
    already is brought onto the branch.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_submitted = "SPARK_ENV_LOADED" in os.environ
    if is_submitted:
        SparkContext._ensure_initialized()
    master = (SparkConf().get("spark.master") if is_submitted else os.environ.get("SPARK_MASTER")) or "local[*]"
    options = _FIXED | catalog.PRIVATE_FILE_OPTIONS | spark_network.get_network_properties(master, settings)
    options |= catalog.get_spark_properties(settings) | {"spark.app.name": name}
    if branch:
        options["spark.wap.branch"] = branch
    if not is_submitted and not SparkContext._active_spark_context:
        os.environ |= runtime.build_java_environment()
        catalog.export_secrets(settings)
        found = jars.install_jars(settings)
        options |= {
            "spark.master": master,
            "spark.jars": ",".join(map(str, found)),
            "spark.driver.extraClassPath": class_archive.get_class_path(found),
            "spark.driver.defaultJavaOptions": class_archive.get_java_options(settings, found),
        }
        # PySpark starts the JVM with this configuration as arguments, which every user of the machine can read.
        shown = [(key, value) for key, value in options.items() if key != spark_network.SECRET_PROPERTY]
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(shown))
    builder = SparkSession.builder.config(map={**options})
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(settings.lakehouse_log_level)
    # What it inherited, it has; this process and DuckDB need the keys under their own names.
    aws_keys.restore_aws_keys()
    for key, value in aws_keys.get_java_properties().items():
        session._jvm.java.lang.System.setProperty(key, value)  # type: ignore[union-attr]
    if not catalog.uses_rest_catalog(settings) and (
        file := pgpass.write_pgpass_file(catalog.get_postgres_parameters(settings))
    ):
        session._jvm.java.lang.System.setProperty(pgpass.PGPASS_PROPERTY, file)  # type: ignore[union-attr]
    return session


def load_iceberg_table(spark: SparkSession, name: str) -> Any:
    """Iceberg's own (Java) table, for what Spark's SQL cannot say. May be called from any thread."""
    # The catalog's configuration is looked up in the session of the thread, and a new thread has none.
    getattr(spark._jvm, "org.apache.spark.sql.SparkSession").setActiveSession(spark._jsparkSession)
    return get_iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(
        spark._jsparkSession, f"{catalog.CATALOG_NAME}.{name}"
    )


def get_iceberg_class(spark: SparkSession, name: str) -> Any:
    """One of Iceberg's (Java) classes, by its name below ``org.apache.iceberg``.

    Named as a whole, as every package on the way would be looked for as a class in all jars.
    """
    return getattr(spark._jvm, f"org.apache.iceberg.{name}")


def iterate_java(found: Any) -> Iterator[Any]:
    """The elements of a Java ``Iterable``, such as the files of a plan."""
    elements = found.iterator()
    while elements.hasNext():
        yield elements.next()
