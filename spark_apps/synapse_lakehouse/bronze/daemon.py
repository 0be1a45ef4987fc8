"""Spark's daemon, which forks the Python workers: what they need to read is loaded once and shared by all of them.

Spark starts it as ``python -m synapse_lakehouse.bronze.daemon`` in place of its own (``spark.python.daemon.module``).
"""

import gc

import pyiceberg.io.pyarrow  # noqa: F401 - what opens a file imports it, which takes a second and 70 MB
from pyspark.daemon import manager

import synapse_lakehouse.source.read  # noqa: F401

if __name__ == "__main__":
    # Objects that are never looked at for garbage stay in pages that workers share.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
