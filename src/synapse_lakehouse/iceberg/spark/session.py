"""Create Spark sessions on the lake."""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError
from synapse_lakehouse.iceberg.catalog import aws_keys, catalog, pgpass
from synapse_lakehouse.iceberg.spark import spark_network
from synapse_lakehouse.java import class_archive, jars, runtime

_FIXED: Final = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.defaultCatalog": catalog.CATALOG_NAME,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.redaction.regex": catalog.get_redaction_pattern(),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Arrow's own memory pool takes twice the memory. If malloc returned each buffer to the system at once, a Python
    # worker would spend a fifth of its time on allocations.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(8 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(8 << 20),
    # Above this size, data of this process become an RDD, because Spark's optimiser would scan a local relation
    # repeatedly.
    "spark.sql.execution.arrow.localRelationThreshold": "4MB",
}


_PARTITIONS_ON_CLUSTER: Final = 200
"""Spark's default, and the fewest partitions of a shuffle on a cluster."""
_PAGE_SIZE: Final = "2m"
"""Memory that each sort, join and aggregation of a task reserves at once, and again when it is full.

Spark's default is a part of the heap, up to 64 MiB, so hundreds of small queries fill the heap with empty pages. A task
has at most 8,192 pages, so 16 GiB.
"""
_PYTHON: Final = "spark.pyspark.python"


class SparkPropertiesError(LakehouseError):
    """LAKEHOUSE_SPARK_PROPERTIES is invalid."""


def create_spark_session(name: str, settings: Settings, branch: str | None = None) -> SparkSession:
    """Return the Spark session of this process. With ``branch``, it reads and writes that branch of branched tables.

    Inside spark-submit, the submitter sets the master and the driver's class path. Otherwise the master is
    SPARK_MASTER, or by default all cores of this machine. An existing session switches to the branch.
    """
    # PySpark reads the workers' Python from the environment only.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if python := settings.lakehouse_spark_properties.get(_PYTHON):
        os.environ["PYSPARK_PYTHON"] = python
    is_submitted = "SPARK_ENV_LOADED" in os.environ
    if is_submitted:
        SparkContext._ensure_initialized()
    master = (SparkConf().get("spark.master") if is_submitted else os.environ.get("SPARK_MASTER")) or "local[*]"
    options = get_session_properties(master, settings) | {"spark.app.name": name}
    jar_files = jars.install_jars(settings)
    if not spark_network.is_local(master):
        # On one machine the driver's class path is enough. Spark would encrypt the jars and send them to itself.
        options["spark.jars"] = ",".join(map(str, jar_files))
    if branch:
        options["spark.wap.branch"] = branch
    if not is_submitted and not SparkContext._active_spark_context:
        os.environ |= runtime.build_java_environment()
        catalog.export_secrets(settings)
        options |= {
            "spark.master": master,
            "spark.driver.extraClassPath": class_archive.get_class_path(jar_files),
            "spark.driver.defaultJavaOptions": class_archive.get_java_options(settings, jar_files),
        }
        # PySpark passes this configuration to the JVM as arguments, which every user of the machine can read.
        public = [(key, value) for key, value in options.items() if key != spark_network.SECRET_PROPERTY]
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(public))
    builder = SparkSession.builder.config(map={**options})
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(settings.lakehouse_log_level)
    # For each table, Iceberg first looks for a catalog with the name of the schema, and logs a stack trace.
    log_errors_only(session, "org.apache.iceberg.spark.Spark3Util")
    # The JVM has inherited the keys. This process and DuckDB need them under the names of the AWS tools.
    aws_keys.restore_aws_keys()
    for key, value in aws_keys.get_java_properties().items():
        session._jvm.java.lang.System.setProperty(key, value)  # type: ignore[union-attr]
    if not catalog.uses_rest_catalog(settings) and (
        file := pgpass.write_pgpass_file(catalog.get_postgres_parameters(settings))
    ):
        session._jvm.java.lang.System.setProperty(pgpass.PGPASS_PROPERTY, file)  # type: ignore[union-attr]
    return session


def log_errors_only(session: SparkSession, logger: str) -> None:
    """Discard the warnings of a Java logger."""
    log4j = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.ERROR)


def get_session_properties(master: str, settings: Settings) -> dict[str, str]:
    """Return the Spark properties of a session on ``master``.

    :raises SparkPropertiesError: when LAKEHOUSE_SPARK_PROPERTIES sets a property that the lakehouse sets.
    :raises SparkSecretError: when a standalone cluster has no secret, or other users can read it.
    """
    own = _FIXED | catalog.PRIVATE_FILE_OPTIONS | catalog.get_spark_properties(settings)
    own |= spark_network.get_network_properties(master, settings)
    if refused := sorted(own.keys() & settings.lakehouse_spark_properties.keys()):
        raise SparkPropertiesError(
            f"LAKEHOUSE_SPARK_PROPERTIES sets {', '.join(refused)}, which the lakehouse sets itself. Remove it."
        )
    # Small tables need few partitions. Adaptive execution merges small partitions and splits skewed ones.
    if spark_network.is_local(master):
        partitions = max(8, 3 * (os.cpu_count() or 1))
    else:
        partitions = max(_PARTITIONS_ON_CLUSTER, 3 * _count_executor_cores(settings.lakehouse_spark_properties))
    defaults = {"spark.sql.shuffle.partitions": str(partitions), "spark.buffer.pageSize": _PAGE_SIZE}
    return defaults | settings.lakehouse_spark_properties | own


def _count_executor_cores(properties: Mapping[str, str]) -> int:
    """Return the maximum number of cores of all executors according to ``properties``; 0 without a limit."""

    def number(name: str) -> int:
        value = properties.get(name, "")
        return int(value) if value.isdecimal() else 0

    executors = max(number("spark.executor.instances"), number("spark.dynamicAllocation.maxExecutors"))
    return max(number("spark.cores.max"), executors * max(number("spark.executor.cores"), 1))


def load_iceberg_table(spark: SparkSession, name: str) -> Any:
    """Return the Iceberg (Java) table, for operations that Spark SQL does not have. May be called from any thread."""
    # Iceberg reads the catalog's configuration from the thread's session, and a new thread has no session.
    getattr(spark._jvm, "org.apache.spark.sql.SparkSession").setActiveSession(spark._jsparkSession)
    return get_iceberg_class(spark, "spark.Spark3Util").loadIcebergTable(
        spark._jsparkSession, f"{catalog.CATALOG_NAME}.{name}"
    )


def get_iceberg_class(spark: SparkSession, name: str) -> Any:
    """Return the Iceberg (Java) class with this name below ``org.apache.iceberg``.

    The full name is looked up in one step. Otherwise py4j would search all jars for a class for each part of the name.
    """
    return getattr(spark._jvm, f"org.apache.iceberg.{name}")


def iterate_java(iterable: Any) -> Iterator[Any]:
    """Yield the elements of a Java ``Iterable``, such as the files of a scan plan."""
    elements = iterable.iterator()
    while elements.hasNext():
        yield elements.next()
