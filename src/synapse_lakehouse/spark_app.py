"""Run a Spark app: parse its arguments, start local services, take the lake lease, report errors."""

import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from synapse_lakehouse.audit import task_costs
from synapse_lakehouse.config.run import Run, parse_run_arguments
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import PAUSE_PREFIX, REPORT_PREFIX, LakehouseError
from synapse_lakehouse.iceberg.catalog import aws_keys
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.lease.lease import Lease
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.printable_text import log_to_stderr, to_printable, to_printable_message


@dataclass(frozen=True)
class SparkApp:
    """A running Spark app: its name, its run and its settings."""

    name: str
    run: Run
    settings: Settings
    writes_branches: bool = True
    """Whether the app writes to run branches. Other apps need no lease."""
    _starting: Lock = field(default_factory=Lock, repr=False, compare=False)

    @cached_property
    def catalog(self) -> Catalog:
        """The lake's catalog for PyIceberg, without a JVM."""
        return open_catalog(self.settings)

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session on the run's branch. Threads wait until it has started."""
        with self._starting:
            return create_spark_session(self.name, self.settings, self.run.branch if self.writes_branches else None)

    @property
    def spark_has_started(self) -> bool:
        """Whether the session has started."""
        return "spark" in vars(self)

    @property
    def lease(self) -> Lease:
        """The lake lease for this run. The app holds the lease while it works."""
        return Lease(self.catalog, self.run.run_id, self.run.branch, self.settings.lakehouse_lease_seconds)

    def report_progress(self, line: str) -> None:
        """Print a progress line for the run's log."""
        # The line is one write, because several threads print.
        print(f"progress: {to_printable(line)}\n", end="", flush=True)


def run_spark_app(
    description: str | None,
    work: Callable[[SparkApp], None],
    *,
    writes_branches: bool = True,
    always_needs_spark: bool = True,
) -> None:
    """Run ``work`` with the run of the command line and the lake lease. After a failure, exit with 1 and a message.

    :param writes_branches: whether ``work`` writes to run branches. If not, it needs no lease.
    :param always_needs_spark: whether Spark starts at once. If not, it starts when ``work`` first uses it.
    """
    log_to_stderr(logging.WARNING, "%(asctime)s %(name)s %(levelname)s %(message)s")
    run = parse_run_arguments(description)
    started = time.monotonic()
    aws_keys.restore_aws_keys()
    try:
        with connect_services() as settings, ThreadPoolExecutor(1) as pool:
            app = SparkApp(work.__name__, run, settings, writes_branches)
            if always_needs_spark:
                # Spark takes seconds to start. Meanwhile the app takes the lease and loads its libraries.
                pool.submit(lambda: app.spark)
            with (
                app.lease.heartbeat() if writes_branches else nullcontext(),
                task_costs.record_cost(app.catalog, run, app.name),
            ):
                work(app)
            if always_needs_spark or app.spark_has_started:
                app.spark.stop()
        print(f"progress: {work.__name__} done in {time.monotonic() - started:.1f} s", flush=True)
    except LakehouseError as error:
        if error.needs_pause:
            sys.exit(PAUSE_PREFIX + to_printable_message(str(error)))
        if error.is_transient:
            raise
        sys.exit(REPORT_PREFIX + to_printable_message(str(error)))
    except Exception as error:
        # Spark, a worker, the warehouse, or the catalog's PostgreSQL may raise this error.
        if "No space left on device" not in str(error):
            raise
        sys.exit(
            f"{REPORT_PREFIX}The disk of the warehouse, or of Spark's scratch space, is full. Nothing was published, "
            "and readers see the previous release. Free disk space (`lakehouse doctor` shows how much is free), then "
            "run again."
        )
