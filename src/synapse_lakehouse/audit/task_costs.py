"""Record the cost of the tasks of a run: seconds, and CPU seconds on the machine of the driver."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

import psutil
from pyiceberg.catalog import Catalog

from synapse_lakehouse.audit import store
from synapse_lakehouse.config.run import Run
from synapse_lakehouse.printable_text import get_printable_logger

COSTS_TABLE: Final = "audit.task_costs"

log = get_printable_logger(__name__)


@contextmanager
def record_cost(catalog: Catalog, run: Run, task: str) -> Iterator[None]:
    """Append a row with the cost of the block, if the block succeeds. A failed append is only logged."""
    started, before = time.monotonic(), read_cpu_seconds()
    yield
    cost = {
        "task": task,
        "seconds": time.monotonic() - started,
        "cpu_seconds": max(0.0, read_cpu_seconds() - before),
        "written_at": datetime.now(UTC),
    }
    try:
        store.append_audit_rows(catalog, COSTS_TABLE, [cost], run)
    except Exception:
        log.warning("The cost of the task %s was not recorded", task, exc_info=True)


def read_cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants; in a Spark driver, also of its JVM."""
    process = psutil.Process()
    parent = process.parent()
    # spark-submit starts the driver as a child of the JVM. Other JVMs are children of the driver.
    root = parent if parent is not None and parent.name() == "java" else process
    total = 0.0
    for member in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
