"""Spark's Python daemon, which forks the Python workers: it loads modules once, for all workers.

Spark starts it as ``python -m`` with this module's name in place of its own daemon (``spark.python.daemon.module``),
one for each environment of workers. Workers for which no module is preloaded start two seconds sooner.
"""

import gc
import importlib
import os
from typing import Final

PRELOAD_VARIABLE: Final = "SYNAPSE_LAKEHOUSE_WORKER_MODULE"
"""Environment variable that names the module whose functions the workers run."""

_RETAINED_BYTES: Final = str(8 << 20)


def build_worker_environment(module: str) -> dict[str, str]:
    """Environment of workers that run functions of ``module`` and allocate buffers of several megabytes.

    Arrow's own memory pool takes twice the memory. If malloc returned each buffer to the system at once, a worker would
    spend a fifth of its time on allocations.
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

    # Pages with objects that the garbage collector never visits stay shared among the workers.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
