"""Start Spark apps for a sequence of runs, and publish the runs, as the DAG does."""

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.publish import publish_branch
from synapse_lakehouse.local.postgres import embedded_postgres
from synapse_lakehouse.spark_app import SparkApp

LARGE_SERVER: Final = {"lakehouse_driver_memory": "2g", "lakehouse_driver_java_options": "-XX:+UseParallelGC"}
"""The default heap, with the Java options that the operating guide recommends for long runs."""


@contextmanager
def new_lake(home: Path) -> Iterator[tuple[Settings, embedded_postgres.EmbeddedServer]]:
    """Yield settings of an empty lake in the folder ``home``, and its catalog's server. Then delete the folder."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with embedded_postgres.run_server(home / "postgres") as server:
        server.create_database("lake")
        lake = {
            "lakehouse_warehouse": str(home / "warehouse"),
            "lakehouse_catalog_uri": server.dsn("lake"),
            "synapse_server_name": "bench.example",
        }
        yield Settings().model_copy(update=lake | LARGE_SERVER), server
    shutil.rmtree(home)


def set_driver_memory(settings: Settings) -> None:
    """Set the heap size of the Spark driver that this process starts. In production, spark-submit sets it."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {settings.lakehouse_driver_memory} pyspark-shell"


def new_app(settings: Settings, number: int) -> SparkApp:
    """Return the app of a new run with day ``number`` as its data interval."""
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    return SparkApp("bench", Run(f"bench-{uuid.uuid4().hex[:8]}", start, start + timedelta(days=1)), settings)


def publish_run(app: SparkApp) -> float:
    """Record passed checks, publish the run, and return the seconds of the publication."""
    passed = {"suite": "bench", "expectation": "none", "subject": "bench", "severity": "fail", "success": True}
    stages = [passed | {"stage": stage, "checked_at": datetime.now(UTC)} for stage in ("bronze", "gold")]
    store.append_audit_rows(app.catalog, "audit.checks", stages, app.run)
    started = time.monotonic()
    # This process is the only writer of the lake, so it needs no lease.
    publish_branch(app.spark, app.catalog, app.run, str(app.settings.synapse_server_name), lambda: None)
    return time.monotonic() - started
