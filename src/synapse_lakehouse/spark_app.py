"""What every Spark app does alike: take its run, join the services, hold the lease, report errors for people."""

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

from synapse_lakehouse.config.run import Run, parse_run_arguments
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import REPORT_PREFIX, LakehouseError
from synapse_lakehouse.iceberg.catalog import aws_keys
from synapse_lakehouse.iceberg.catalog.catalog import open_catalog
from synapse_lakehouse.iceberg.lease.lease import Lease
from synapse_lakehouse.iceberg.spark.session import create_spark_session
from synapse_lakehouse.local.services import connect_services
from synapse_lakehouse.printable_text import log_to_stderr, to_printable, to_printable_message


@dataclass(frozen=True)
class SparkApp:
    """A Spark app at work: its name, its run and the settings that are in force."""

    name: str
    run: Run
    settings: Settings
    writes_branches: bool = True
    """Whether it writes branched tables; else it works on main, and needs no lease."""
    _starting: Lock = field(default_factory=Lock, repr=False, compare=False)

    @cached_property
    def catalog(self) -> Catalog:
        """The lake's catalog, without a JVM."""
        return open_catalog(self.settings)

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session, on the run's branch; whoever asks while it starts waits for it."""
        with self._starting:
            return create_spark_session(self.name, self.settings, self.run.branch if self.writes_branches else None)

    @property
    def spark_has_started(self) -> bool:
        """Whether the session has started."""
        return "spark" in vars(self)

    @property
    def lease(self) -> Lease:
        """The lake lease as this run wants it; it is held while the app works."""
        return Lease(self.catalog, self.run.run_id, self.run.branch, self.settings.lakehouse_lease_seconds)

    def report_progress(self, line: str) -> None:
        """Tell whoever watches the run how far it is."""
        # In one piece, as several threads tell.
        print(f"progress: {to_printable(line)}\n", end="", flush=True)


def run_spark_app(
    description: str | None,
    work: Callable[[SparkApp], None],
    *,
    moves_tables: bool = True,
    always_needs_spark: bool = True,
) -> None:
    """Run ``work`` for the run given on the command line, holding the lake lease; exit 1 with a message on failure.

    :param moves_tables: whether it writes branched tables; one that does not needs no lease.
    :param always_needs_spark: whether Spark starts at once, or when ``work`` asks for it, if ever.
    """
    log_to_stderr(logging.WARNING, "%(asctime)s %(name)s %(levelname)s %(message)s")
    run = parse_run_arguments(description)
    started = time.monotonic()
    aws_keys.restore_aws_keys()
    try:
        with connect_services() as settings, ThreadPoolExecutor(1) as pool:
            app = SparkApp(work.__name__, run, settings, moves_tables)
            if always_needs_spark:
                # Spark takes seconds to start; meanwhile the lease is taken and the work loads its libraries.
                pool.submit(lambda: app.spark)
            with app.lease.heartbeat() if moves_tables else nullcontext():
                work(app)
            if always_needs_spark or app.spark_has_started:
                app.spark.stop()
        print(f"progress: {work.__name__} done in {time.monotonic() - started:.1f} s", flush=True)
    except LakehouseError as error:
        if error.is_transient:
            raise
        sys.exit(REPORT_PREFIX + to_printable_message(str(error)))
    except Exception as error:
        # Whoever meets it first: Spark, a worker, the warehouse, or the catalog's PostgreSQL.
        if "No space left on device" not in str(error):
            raise
        sys.exit(
            f"{REPORT_PREFIX}The disk is full: the warehouse or Spark's scratch space has no room left. Nothing was "
            "published and readers see the release before. Free space (`lakehouse doctor` shows how much there is), "
            "then run again."
        )
