"""Spark apps of the bench: run after run, as the tasks of the main job start and publish them."""

import os
import time
import uuid
from datetime import UTC, datetime, timedelta

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.write.publish import publish_branch
from synapse_lakehouse.spark_app import SparkApp


def give_memory(settings: Settings) -> None:
    """Let a Spark driver that this process starts have its heap, as tasks hand it to spark-submit."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {settings.lakehouse_driver_memory} pyspark-shell"


def app(settings: Settings, number: int) -> SparkApp:
    """The app of the run with this number, of a day of its own."""
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    return SparkApp("bench", Run(f"bench-{uuid.uuid4().hex[:8]}", start, start + timedelta(days=1)), settings)


def published(app: SparkApp) -> float:
    """Publish the app's run, as if all checks had passed; seconds that it took."""
    passed = {"suite": "bench", "expectation": "none", "subject": "bench", "severity": "fail", "success": True}
    stages = [passed | {"stage": stage, "checked_at": datetime.now(UTC)} for stage in ("bronze", "gold")]
    store.append_audit_rows(app.catalog, "audit.checks", stages, app.run)
    started = time.monotonic()
    # Nobody else writes to this lake, so there is no lease to keep.
    publish_branch(app.spark, app.catalog, app.run, str(app.settings.synapse_server_name), lambda: None)
    return time.monotonic() - started
