"""Spark's Python daemon, which loads modules once and then forks the Python workers.

Spark starts this module as ``python -m`` in place of its own daemon (``spark.python.daemon.module``), once for each
environment of workers. Without a module to preload, workers start two seconds sooner.
"""

import gc
import importlib
import os
from typing import Final

PRELOAD_VARIABLE: Final = "SYNAPSE_LAKEHOUSE_WORKER_MODULE"
"""Environment variable with the name of the module whose functions the workers run."""

_RETAINED_BYTES: Final = str(8 << 20)


def build_worker_environment(module: str) -> dict[str, str]:
    """Return the environment of workers that run functions of ``module`` and allocate large buffers.

    The workers use malloc, because Arrow's own memory pool takes twice the memory. If malloc returned each buffer to
    the system at once, a worker would spend a fifth of its time on allocations.
    """
    return {
        PRELOAD_VARIABLE: module,
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": _RETAINED_BYTES,
        "MALLOC_TRIM_THRESHOLD_": _RETAINED_BYTES,
    }


if __name__ == "__main__":
    from pyspark.daemon import manager

    from synapse_lakehouse.iceberg.catalog import aws_keys

    aws_keys.restore_aws_keys()
    if module := os.environ.get(PRELOAD_VARIABLE):
        import pyiceberg.io.pyarrow  # noqa: F401 - opening a file imports it, which takes a second and 70 MB

        importlib.import_module(module)

    # The garbage collector skips frozen objects, so the memory pages with them stay shared among the workers.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
