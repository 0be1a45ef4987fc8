"""Spark's daemon, which forks the Python workers: what they need to read is loaded once and shared by all of them.

Spark starts it as ``python -m synapse_lakehouse.ingest.worker_daemon`` in place of its own
(``spark.python.daemon.module``), one for each environment of workers. A worker that does not read Synapse's database
starts two seconds sooner.
"""

import gc
import os
from typing import Final

READS_SOURCE: Final = "SYNAPSE_LAKEHOUSE_WORKERS_READ"
"""Variable of the environment of workers that read the source."""

_KEPT: Final = str(8 << 20)
WORKER_ENVIRONMENT: Final = {
    READS_SOURCE: "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": _KEPT,
    "MALLOC_TRIM_THRESHOLD_": _KEPT,
}
"""Of these workers, which fill one buffer of megabytes after the other: Arrow's own pool keeps twice as much as they
use, and where each buffer is given back at once, a fifth of the time goes into asking for the next."""

if __name__ == "__main__":
    from pyspark.daemon import manager

    from synapse_lakehouse.iceberg.catalog import aws_keys

    aws_keys.show()
    if READS_SOURCE in os.environ:
        import pyiceberg.io.pyarrow  # noqa: F401 - what opens a file imports it, which takes a second and 70 MB

        import synapse_lakehouse.postgres.rows.read  # noqa: F401

    # Objects that are never looked at for garbage stay in pages that workers share.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
